"""The libcuda that a program started here would load, asked in a child process of its own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verl_env.node.answers import (
    LibraryAnswer,
    dotted_api,
    find_fault,
    is_absent,
    merge_lines,
    version_in_name,
)
from verl_env.node.facts import Gpu, Libcuda

if TYPE_CHECKING:
    from verl_env.node.host import Host
    from verl_env.process import Completed

NAME = "libcuda.so.1"

# Only these matter to a reader, and an old libcuda may not know the newer ones.
_ERRORS = {
    34: "CUDA_ERROR_STUB_LIBRARY",
    46: "CUDA_ERROR_DEVICE_UNAVAILABLE",
    100: "CUDA_ERROR_NO_DEVICE",
    101: "CUDA_ERROR_INVALID_DEVICE",
    802: "CUDA_ERROR_SYSTEM_NOT_READY",
    803: "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
    804: "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
    999: "CUDA_ERROR_UNKNOWN",
}


def list_visible(host: Host) -> tuple[dict[str, Any], ...]:
    """Return the devices that CUDA shows to a program started here, in CUDA's order: index, name, uuid and more."""
    return tuple(merge_lines(_run_child(host).stdout).get("devices") or ())


def _run_child(host: Host) -> Completed:
    return host.run([sys.executable, "-I", "-S", Path(__file__).with_name("libcuda_child.py")])


def ask_libcuda(host: Host) -> LibraryAnswer:
    """Return what libcuda says, or how it failed; LD_LIBRARY_PATH counts, as it would for a program."""
    done = _run_child(host)
    said = merge_lines(done.stdout)
    fault, words = find_fault(done, said, "libcuda")
    if is_absent(said.get("load_error"), NAME):
        return LibraryAnswer(library="libcuda", found=False, said=words)
    code = None if fault else said.get("code")
    return LibraryAnswer(
        library="libcuda",
        found=True,
        path=said.get("path"),
        version=version_in_name(said.get("path"), "libcuda.so"),
        api_version=dotted_api(said.get("api")),
        code=code,
        fault=fault,
        said=words or _name(code, said.get("name")),
        gpus=tuple(_gpu(values) for values in said.get("devices") or ()),
    )


def _name(code: int | None, name: str | None) -> str:
    """Say what cuInit returned, or nothing when it succeeded."""
    return f"cuInit returned {code} ({name or _ERRORS.get(code, 'no name')})" if code else ""


def _gpu(values: dict[str, Any]) -> Gpu:
    """Turn one device's answers into the fact."""
    major, minor = values["capability"]
    return Gpu(
        name=values["name"],
        source="libcuda",
        index=values["index"],
        compute_capability=f"{major}.{minor}",
        memory_total_mib=values["total"] >> 20,
    )


def judge_libcuda(answer: LibraryAnswer, driver_version: str | None) -> Libcuda | None:
    """Turn the answer into the fact: a compat library has a telling folder, or another version and works.

    A library of another version that does not work is what an update leaves behind, not a compat library.
    """
    if not answer.found:
        return None
    path = answer.path or NAME
    differs = None not in (answer.version, driver_version) and answer.version != driver_version
    return Libcuda(
        path=path,
        source=f"dlopen {NAME}",
        version=answer.version,
        compat=any("compat" in part for part in Path(path).parts) or (differs and answer.works),
        api_version=answer.api_version,
        works=answer.works,
        error=answer.said or None,
    )
