"""Where Pythons live: uv's folder, pyenv's, conda's, the system's, and PATH."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from verl_env.node.host import list_matching

if TYPE_CHECKING:
    from collections.abc import Iterator

    from verl_env.node.host import Host

_MINORS = range(8, 17)
_FIRST_FREE_THREADED = 13
_NAMES = (
    "python3",
    *(f"python3.{minor}" for minor in _MINORS),
    *(f"python3.{minor}t" for minor in _MINORS if minor >= _FIRST_FREE_THREADED),
)
_CONDA_HOMES = (
    "miniconda3",
    "anaconda3",
    "miniforge3",
    "mambaforge",
    "micromamba",
    ".conda",
    ".local/share/mamba",
)
_CONDA_ROOTS = ("/opt/conda", "/opt/miniconda3", "/opt/miniforge3", "/opt/anaconda3")
_PYENV_ROOTS = ("/opt/pyenv", "/usr/local/pyenv")
_SYSTEM = ("/usr/bin", "/usr/local/bin")
_HEAD_BYTES = 2048
_SHIM = re.compile(rb"pyenv\"? exec|PYENV_|asdf\"? exec")
_SHIM_PROGRAMS = ("mise", "asdf", "rtx")


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """An executable that may be a Python, and why it is looked at."""

    path: Path
    kind: str
    source: str


def list_candidates(host: Host) -> tuple[Candidate, ...]:
    """Return all there are; those of a version manager come first, so that they are named after it."""
    groups = (_uv(host), _pyenv(host), _conda(host), _system(host), _on_path(host), _our_own(host))
    return tuple(candidate for group in groups for candidate in group if _is_program(candidate.path))


def _uv(host: Host) -> Iterator[Candidate]:
    """Yield those that uv has installed."""
    named = host.environ.get("UV_PYTHON_INSTALL_DIR")
    data = Path(host.environ.get("XDG_DATA_HOME") or host.home / ".local" / "share")
    folder = Path(named) if named else data / "uv" / "python"
    for path in list_matching(folder, "[!.]*/bin/python3*"):
        if path.name in _NAMES:
            yield Candidate(path=path, kind="uv", source=f"uv ({folder})")


def _pyenv(host: Host) -> Iterator[Candidate]:
    """Yield those in pyenv's versions folders, which are what its shims run."""
    roots = [Path(host.environ.get("PYENV_ROOT") or host.home / ".pyenv"), *map(host.path, _PYENV_ROOTS)]
    for root in dict.fromkeys(roots):
        for path in list_matching(root / "versions", "*/bin/python3"):
            yield Candidate(path=path, kind="pyenv", source=f"pyenv ({root})")


def _conda(host: Host) -> Iterator[Candidate]:
    """Yield those of conda's environments, its own list of them included."""
    roots = [host.home / name for name in _CONDA_HOMES] + [host.path(name) for name in _CONDA_ROOTS]
    prefixes = [Path(value) for name in ("CONDA_PREFIX", "MAMBA_ROOT_PREFIX") if (value := host.environ.get(name))]
    for root in (*roots, *prefixes):
        prefixes = [*prefixes, root, *list_matching(root / "envs", "*")]
    try:
        listed = (host.home / ".conda" / "environments.txt").read_text(encoding="utf-8", errors="replace")
    except OSError:
        listed = ""
    prefixes += [Path(line.strip()) for line in listed.splitlines() if line.strip()]
    for prefix in dict.fromkeys(prefixes):
        yield Candidate(path=prefix / "bin" / "python3", kind="conda", source=f"conda ({prefix})")


def _system(host: Host) -> Iterator[Candidate]:
    """Yield the distribution's (deadsnakes installs there too), hand-made ones and manylinux images'."""
    for folder in _SYSTEM:
        for name in _NAMES:
            path = host.path(folder) / name
            yield Candidate(path=path, kind="system", source=folder)
    for path in host.glob("/opt/python", "*/bin/python3"):
        yield Candidate(path=path, kind="system", source="/opt/python")


def _on_path(host: Host) -> Iterator[Candidate]:
    """Yield those along PATH."""
    for folder in dict.fromkeys(host.environ.get("PATH", os.defpath).split(os.pathsep)):
        if Path(folder).is_absolute():
            for name in _NAMES:
                yield Candidate(path=Path(folder) / name, kind="path", source="PATH")


def _our_own(host: Host) -> Iterator[Candidate]:
    """Yield the one that runs verl-env, which may be in none of these places."""
    if host.root == Path("/"):
        yield Candidate(path=Path(sys.executable), kind="path", source="runs verl-env")


def _is_program(path: Path) -> bool:
    """Whether it can be run and is no version manager's shim, which would answer for another Python."""
    try:
        if not os.access(path, os.X_OK) or path.is_dir():
            return False
        with path.open("rb") as stream:
            head = stream.read(_HEAD_BYTES)
    except OSError:
        return os.access(path, os.X_OK)
    return not (head.startswith(b"#!") and _SHIM.search(head)) and path.resolve().name not in _SHIM_PROGRAMS
