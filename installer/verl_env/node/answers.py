"""What driver libraries and tools answered, before any of it is judged."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from verl_env.node.facts import Gpu, GpuPair
    from verl_env.process import Completed


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryAnswer:
    """What became of one driver library (NVML or libcuda) in a child of its own.

    `found` is false when the loader knows no such library. `code` is what its init function returned. `fault`
    is `hung`, `crashed` or `unloadable` when it never got so far, and `said` its own words.
    """

    library: str
    found: bool
    path: str | None = None
    version: str | None = None
    api_version: str | None = None
    driver_version: str | None = None
    code: int | None = None
    fault: str = ""
    said: str = ""
    gpus: tuple[Gpu, ...] = ()
    pairs: tuple[GpuPair, ...] = ()
    gpu_errors: tuple[str, ...] = ()

    @property
    def works(self) -> bool:
        """Whether the library initialised."""
        return self.found and self.code == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SmiAnswer:
    """What nvidia-smi printed: `error` is set when it ran and failed, `late` when it was ended for its silence."""

    path: str
    driver_version: str | None = None
    cuda_version: str | None = None
    gpus: tuple[Gpu, ...] = ()
    error: str | None = None
    late: bool = False


def merge_lines(text: str) -> dict[str, Any]:
    """Return the union of a child's JSON lines; a line cut off by a crash counts for nothing."""
    merged: dict[str, Any] = {}
    for line in text.splitlines():
        try:
            values = json.loads(line)
        except ValueError:
            continue
        if isinstance(values, dict):
            merged |= values
    return merged


def find_fault(done: Completed, said: dict[str, Any], library: str) -> tuple[str, str]:
    """Return the kind of failure and its words, or two empty strings when the child came to its end."""
    if done.timed_out:
        return "hung", f"{library} did not answer within {done.seconds:.2g} s and was ended"
    if done.returncode < 0:
        return "crashed", f"{library} ended its process with signal {-done.returncode}"
    if done.returncode > 0:
        return "crashed", (done.tail(1) or (f"exit status {done.returncode}",))[0]
    if "load_error" in said:
        return "unloadable", str(said["load_error"])
    return "", ""


def is_absent(load_error: str | None, name: str) -> bool:
    """Whether a dlopen message says that the library itself, and not one it needs, is not there."""
    return load_error is not None and load_error.startswith(f"{name}: cannot open shared object file: No such file")


def version_in_name(path: str | None, stem: str) -> str | None:
    """Return the driver version in a library's real file name: `libcuda.so.580.95.05` -> `580.95.05`."""
    version = (path or "").rpartition("/")[2].removeprefix(stem + ".")
    return version if version.count(".") and version.replace(".", "").isdigit() else None


def dotted_api(number: int | None) -> str | None:
    """Turn CUDA's number into words: 13000 -> `13.0`, 12080 -> `12.8`."""
    return f"{number // 1000}.{number % 1000 // 10}" if number else None
