"""CUDA toolkits on disk. The version is what nvcc says; a folder's name is only a name."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from verl_env.node.facts import Toolkit
from verl_env.node.later import map_together

if TYPE_CHECKING:
    from verl_env.node.host import Host

_VARIABLES = ("CUDA_HOME", "CUDA_PATH")
_FOLDERS = (
    ("/usr/local", "cuda*"),
    ("/opt", "cuda*"),
    ("/usr/lib", "nvidia-cuda-toolkit"),
    ("/opt/nvidia/hpc_sdk", "*/*/cuda"),
)
_RELEASE = re.compile(r"\bV(\d+\.\d+\.\d+)\b")
_HERE = re.compile(r"^#\$ _HERE_=(.+)$", re.MULTILINE)


def parse_nvcc_version(text: str) -> str | None:
    """Return `13.0.88` of `Cuda compilation tools, release 13.0, V13.0.88`."""
    found = _RELEASE.search(text)
    return found[1] if found else None


def find_toolkits(host: Host) -> tuple[Toolkit, ...]:
    """Return each toolkit once, by its real path, with all the names that lead to it as its source."""
    places: dict[Path, list[str]] = {}
    broken = []
    for path, source in _candidates(host):
        real = Path(os.path.realpath(path))
        if real.is_dir():
            places.setdefault(real, []).append(source)
        else:
            broken.append(Toolkit(path=str(path), source=source, error="no such folder"))
    items = [(path, ", ".join(dict.fromkeys(sources))) for path, sources in places.items()]
    read = map_together(lambda item: read_toolkit(host, *item), items, limit=2 * host.patience)
    return (*broken, *(toolkit for toolkit in read if toolkit))


def read_toolkit(host: Host, path: Path, source: str) -> Toolkit:
    """Run the folder's nvcc for its version; a runtime image has the folder and no nvcc."""
    nvcc = path / "bin" / "nvcc"
    if not nvcc.is_file():
        return Toolkit(path=str(path), source=source, error="no bin/nvcc in it")
    done = host.run([nvcc, "--version"])
    version = parse_nvcc_version(done.stdout)
    if version is None:
        said = f"no answer within {host.patience:g} s" if done.timed_out else " ".join(done.tail(1)) or "no version"
        return Toolkit(path=str(path), source=source, error=f"nvcc: {said}")
    return Toolkit(path=str(path), source=source, version=version)


def _candidates(host: Host) -> list[tuple[Path, str]]:
    """Return the folders that may be toolkits, with why each is looked at."""
    found = [(Path(value), name) for name in _VARIABLES if (value := host.environ.get(name))]
    nvcc = host.which("nvcc")
    if nvcc:
        found.append((_root_of(host, nvcc), f"nvcc on PATH ({nvcc})"))
    for folder, pattern in _FOLDERS:
        seen = host.glob(folder, pattern)
        found += [(path, str(path)) for path in seen if path.is_dir() and _looks_like_toolkit(path)]
    prefix = host.environ.get("CONDA_PREFIX")
    if prefix and (Path(prefix) / "bin" / "nvcc").is_file():
        found.append((Path(prefix), "CONDA_PREFIX"))
    return found


def _looks_like_toolkit(path: Path) -> bool:
    """Tell a toolkit from a folder that only shares its name (samples, a keyring, an empty remainder)."""
    return any((path / name).exists() for name in ("bin/nvcc", "include/cuda.h", "version.json", "lib64", "targets"))


def _root_of(host: Host, nvcc: Path) -> Path:
    """Return the toolkit an nvcc belongs to: it may be a link, or a script that runs another one."""
    real = Path(os.path.realpath(nvcc))
    if _is_script(real):
        found = _HERE.search(host.run([real, "--dryrun", "-c", "x.cu"]).stderr)
        if found:
            return Path(found[1].strip()).parent
    return real.parent.parent


def _is_script(path: Path) -> bool:
    """Whether the file begins with `#!`."""
    try:
        with path.open("rb") as stream:
            return stream.read(2) == b"#!"
    except OSError:
        return False
