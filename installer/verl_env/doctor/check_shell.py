"""Variables that change what an environment loads, compiles or sees."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from verl_env.doctor.known import found
from verl_env.node.host import list_matching

if TYPE_CHECKING:
    from collections.abc import Iterator

    from verl_env.doctor.situation import Situation
    from verl_env.node.facts import Finding

# Libraries that torch's wheels bring themselves; found on LD_LIBRARY_PATH they come first. The driver's are none of
# them, nor are NCCL's plugins (libnccl-net).
_OWN = re.compile(
    r"^lib(?:cudart|cublas|cublasLt|cudnn\w*|nccl|nvrtc|nvJitLink|cusparse|cusparseLt|cufft|cusolver|curand|cupti"
    r"|nvshmem_host|stdc\+\+|gomp|torch|c10)\.so"
)
_DIGITS = re.compile(r"\d+")
_RUN = "run programs with `verl-env run --`, which keeps it out"


def check_shell(situation: Situation) -> Iterator[Finding]:
    """Yield what the variables of this shell would do."""
    environ = situation.environ
    yield from _python(situation)
    yield from _libraries(situation)
    yield from _cuda_home(situation)
    yield from _devices(environ.get("CUDA_VISIBLE_DEVICES"))
    if prefix := environ.get("CONDA_PREFIX"):
        yield found("conda-active", f"CONDA_PREFIX=`{prefix}`", f"`conda deactivate`, or {_RUN}")
    for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        if "expandable_segments:true" in environ.get(name, "").lower().replace(" ", ""):
            evidence = f"{name}=`{environ[name]}`"
            yield found("expandable-segments", evidence, f"take `expandable_segments:True` out of {name}")
    if environ.get("CUDA_LAUNCH_BLOCKING", "0") not in ("", "0"):
        evidence = f"CUDA_LAUNCH_BLOCKING=`{environ['CUDA_LAUNCH_BLOCKING']}`"
        yield found("allocator-blocking", evidence, "unset CUDA_LAUNCH_BLOCKING")


def _python(situation: Situation) -> Iterator[Finding]:
    """Find what leads Python elsewhere."""
    environ = situation.environ
    if value := environ.get("PYTHONPATH"):
        inside = _packages_in(value)
        evidence = f"PYTHONPATH=`{value}`" + (f"; it holds {', '.join(inside)}" if inside else "")
        yield found(
            "pythonpath-set", evidence, f"unset PYTHONPATH, or {_RUN}", severity="error" if inside else "warning"
        )
    if value := environ.get("PYTHONHOME"):
        yield found("pythonhome-set", f"PYTHONHOME=`{value}`", "unset PYTHONHOME", severity="error")
    if environ.get("PYTHONNOUSERSITE"):
        return
    sites = list_matching(situation.host.home / ".local" / "lib", "python3*/site-packages")
    stack = {str(site): names for site in sites if (names := _packages_in(str(site)))}
    if stack:
        evidence = "; ".join(f"{site} holds {', '.join(names)}" for site, names in stack.items())
        yield found("user-site-leaks", evidence, f"set PYTHONNOUSERSITE=1, or {_RUN}")


def _packages_in(value: str) -> list[str]:
    """Return the packages of the stack that folders of a path list hold."""
    names = ("torch", "vllm", "sglang", "verl", "ray", "transformers", "flash_attn", "flashinfer", "triton", "numpy")
    folders = [Path(part) for part in value.split(os.pathsep) if part]
    return [name for name in names if any((folder / name / "__init__.py").is_file() for folder in folders)]


def _libraries(situation: Situation) -> Iterator[Finding]:
    """Find libraries that would be loaded in place of the environment's."""
    environ = situation.environ
    shadows = []
    for part in environ.get("LD_LIBRARY_PATH", "").split(os.pathsep):
        if not part or (situation.subject and part.startswith(str(situation.subject.folder))):
            continue
        names = sorted(
            {
                path.name.partition(".so")[0] + ".so"
                for path in list_matching(Path(part), "lib*.so*")
                if _OWN.match(path.name)
            }
        )
        if names:
            shadows.append(f"{part}: {', '.join(names[:4])}{' …' if len(names) > 4 else ''}")  # noqa: PLR2004
    if shadows:
        yield found(
            "library-path-shadows", f"LD_LIBRARY_PATH: {'; '.join(shadows)}", f"take it off LD_LIBRARY_PATH, or {_RUN}"
        )
    if value := environ.get("LD_PRELOAD"):
        yield found("preload-set", f"LD_PRELOAD=`{value}`", "unset LD_PRELOAD, unless it is there on purpose")


def _cuda_home(situation: Situation) -> Iterator[Finding]:
    """Find a CUDA_HOME that is malformed, leads nowhere, or to another CUDA."""
    for name in ("CUDA_HOME", "CUDA_PATH"):
        value = situation.environ.get(name)
        if not value:
            continue
        fault = _fault_of(value)
        if fault:
            yield found(
                "cuda-home-broken",
                f"{name}=`{value}`: {fault}",
                f"set {name} to a toolkit's folder, or unset it",
                severity="error",
            )
            continue
        wanted = situation.subject.cuda if situation.subject else None
        version = next(
            (
                it.version
                for it in situation.node.toolkits
                if it.version and os.path.realpath(value) == os.path.realpath(it.path)
            ),
            None,
        )
        if wanted and version and not f"{version}.".startswith(f"{wanted}."):
            evidence = f"{name}=`{value}` is CUDA {version}; torch is built for {wanted}"
            yield found(
                "cuda-home-other",
                evidence,
                f"set {name} to a CUDA {wanted} toolkit, or run programs with `verl-env run --`",
            )


def _fault_of(value: str) -> str:
    """Say what is wrong with a toolkit's path; nothing when it has an nvcc."""
    if value != value.strip() or os.pathsep in value:
        return "a list or blanks where one folder belongs"
    if not os.path.isdir(value):
        return "no such folder"
    return "" if os.path.exists(os.path.join(value, "bin", "nvcc")) else "no bin/nvcc in it"


def _devices(value: str | None) -> Iterator[Finding]:
    """Find what programs cannot read as a list of GPUs."""
    parts = [part.strip() for part in (value or "").split(",")]
    if value is None or not value.strip() or value.strip() == "-1":
        return
    action = "set CUDA_VISIBLE_DEVICES to indices, such as 0,1"
    if any(part.startswith("MIG-") for part in parts):
        yield found("visible-devices-mig", f"CUDA_VISIBLE_DEVICES=`{value}`", action)
    elif not all(_DIGITS.fullmatch(part) for part in parts):
        yield found("visible-devices", f"CUDA_VISIBLE_DEVICES=`{value}`", action)
    elif len(set(parts)) < len(parts):
        yield found("visible-devices", f"CUDA_VISIBLE_DEVICES=`{value}` names a GPU twice", action)
