"""A CUDA_HOME inside the environment, put together from the toolkit's wheels.

The wheels share `nvidia/cu13/{bin,include,lib,nvvm}`; nvcc looks for `lib64` and linkers for names without a version,
and neither is there. Over a base, some wheels are the base's. So: a folder of links to the files of exactly the locked
wheels, by their RECORDs. Links are relative inside the environment, and absolute into a base.
"""

from __future__ import annotations

import os
import posixpath
import re
from dataclasses import dataclass, replace
from importlib.metadata import Distribution
from pathlib import Path
from typing import TYPE_CHECKING

from verl_env.environment.driver_stub import functions_of, render_stub
from verl_env.files import write_atomically
from verl_env.node.facts import Toolkit
from verl_env.node.host import Host
from verl_env.node.toolkits import read_toolkit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from verl_env.environment.exports import Surroundings
    from verl_env.environment.overlay import Overlay
    from verl_env.lock.lockfile import Lock

    _Below = Callable[[str], frozenset[str]]

FOLDER = "cuda"  # in the environment
_SOURCE = "the environment's own, of the toolkit's wheels"
_PATIENCE = 60.0  # seconds for nvcc to start from a disk that is busy with the installation
# What a toolkit's folder is called in it; the wheels know no `lib64`.
_PARTS = {"bin": "bin", "include": "include", "lib": "lib64", "nvvm": "nvvm"}
_OPEN = ("bin", "lib")  # never one link: nvcc finds the rest from `bin/..`, and names are added to `lib64`
_LIBRARY = re.compile(r"(lib.+\.so)(\.\d+)+")
# Without any one of these nothing can be compiled and linked: package, what of it is looked for, what it is.
_NEEDED = (
    ("nvidia-cuda-nvcc", "bin/nvcc", "the compiler"),
    ("nvidia-cuda-crt", "include/crt/host_config.h", "the compiler's headers"),
    ("nvidia-nvvm", "nvvm/bin/cicc", "the compiler's back end"),
    ("nvidia-cuda-runtime", "include/cuda_runtime.h", "the runtime's headers and libraries"),
    ("nvidia-cuda-cccl", "include/cccl/cuda/std/version", "the C++ library that torch's headers use"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """The files of one wheel below a toolkit's root: `root` is an absolute `…/nvidia/cu13`, `files` relative to it."""

    package: str
    root: str
    files: tuple[str, ...]


# What compiles CUDA code at run time: a file of it, what it is called.
_COMPILING = (
    ("flashinfer/jit/__init__.py", "flashinfer's JIT"),
    ("deep_gemm/__init__.py", "DeepGEMM"),
    ("vllm/third_party/deep_gemm/__init__.py", "vLLM's DeepGEMM"),
    ("tilelang/__init__.py", "TileLang"),
    ("torch/utils/cpp_extension.py", "torch extensions (torch.utils.cpp_extension)"),
)


def complete(around: Surroundings, folder: Path, lock: Lock, overlay: Overlay | None) -> Surroundings:
    """Add what an environment has now that its packages are installed: a toolkit, and what needs one."""
    own = own_toolkit(folder, lock, overlay) if lock.table.cuda else None
    places = [str(it) for it in folder.glob("lib/python*/site-packages")]
    places += overlay.read.folders if overlay else ()
    return replace(around, toolkits=(*([own] if own else []), *around.toolkits), compiling=what_compiles(places))


def own_toolkit(folder: Path, lock: Lock, overlay: Overlay | None) -> Toolkit | None:
    """Put CUDA_HOME together where the lock has an nvcc, and ask that nvcc for its version; None where it has none."""
    pieces = tuple(find_pieces(folder, lock, overlay))
    if not any("bin/nvcc" in piece.files for piece in pieces):
        return None
    if missing := missing_from(pieces):
        return Toolkit(path=str(folder / FOLDER), source=_SOURCE, error=f"it lacks {', '.join(missing)}")
    assemble(folder, pieces, lock.table.arch)
    return read_toolkit(Host(patience=_PATIENCE), folder / FOLDER, _SOURCE)


def assemble(folder: Path, pieces: tuple[Piece, ...], machine: str) -> None:
    """Make the folder of links, and the stub of the driver's library that the wheels lack."""
    target = folder / FOLDER
    for name, source in sorted(plan_links(pieces, _files_below).items()):
        _link(target / name, _pointing(source, target / name, folder))
    for name, real in library_names((target / "lib64").iterdir()).items():
        _link(target / "lib64" / name, real)
    _link(target / "lib", "lib64")
    header = (target / "include" / "cuda.h").read_text(encoding="utf-8", errors="replace")
    write_atomically(target / "lib64" / "stubs" / "libcuda.so", render_stub(functions_of(header), machine))


def find_pieces(folder: Path, lock: Lock, overlay: Overlay | None) -> Iterator[Piece]:
    """Yield the pieces of the lock's packages, from the base where its package is used."""
    below = f"nvidia/cu{(lock.table.cuda or '').partition('.')[0]}"
    own = tuple(str(it) for it in sorted(folder.glob("lib/python*/site-packages")))
    used = {pin.name for pin in overlay.used} if overlay else set()
    for pin in lock.pins:
        if not pin.name.startswith("nvidia-"):
            continue
        places = overlay.read.folders if overlay and pin.name in used else own
        found = next(iter(Distribution.discover(name=pin.name, path=list(places))), None)
        if found and (piece := _piece_of(pin.name, found, below)):
            yield piece


def _piece_of(name: str, found: Distribution, below: str) -> Piece | None:
    """Return what an installed package has below a toolkit's root."""
    paths = (path.as_posix() for path in found.files or ())
    files = tuple(path.removeprefix(f"{below}/") for path in paths if path.startswith(f"{below}/"))
    root = os.path.abspath(str(found.locate_file(below)))
    return Piece(package=name, root=root, files=files) if files else None


def missing_from(pieces: tuple[Piece, ...]) -> tuple[str, ...]:
    """Name the packages without which nothing can be compiled."""
    have = {file for piece in pieces for file in piece.files}
    return tuple(f"{package} ({what})" for package, file, what in _NEEDED if file not in have)


def plan_links(pieces: tuple[Piece, ...], below: _Below) -> dict[str, str]:
    """Return each link's place in CUDA_HOME with what it points at; `below` lists the files of a folder on disk.

    A folder whose wanted files are all below one root, and which holds nothing else there, is one link.
    """
    files: dict[str, str] = {}
    for piece in pieces:
        for file in piece.files:
            files.setdefault(file, piece.root)
    return dict(_links_of("", files, below))


def _links_of(folder: str, files: Mapping[str, str], below: _Below) -> Iterator[tuple[str, str]]:
    """Yield the links of one folder's parts; `files` are relative to it."""
    parts: dict[str, dict[str, str]] = {}
    for file, root in files.items():
        part, _, rest = file.partition("/")
        parts.setdefault(part, {})[rest] = root
    for part, inside in parts.items():
        path = posixpath.join(folder, part)
        roots = set(inside.values())
        root = min(roots)
        if not folder and part not in _PARTS:
            continue  # what a wheel leaves beside the toolkit's own folders
        alone = len(roots) == 1 and path not in _OPEN
        if "" in inside or (alone and below(f"{root}/{path}") == set(inside)):
            yield _placed(path), f"{root}/{path}"
        else:
            yield from _links_of(path, inside, below)


def _placed(path: str) -> str:
    """Return where a path of the wheels is in CUDA_HOME."""
    part, _, rest = path.partition("/")
    return posixpath.join(_PARTS[part], rest) if rest else _PARTS[part]


def library_names(there: Iterable[Path]) -> dict[str, str]:
    """Return the names that linkers look for, with the file that each stands for: libcudart.so, libcudart.so.13."""
    names: dict[str, str] = {}
    for name in sorted(it.name for it in there):
        if match := _LIBRARY.fullmatch(name):
            names.setdefault(match[1], name)
    return names


def _files_below(folder: str) -> frozenset[str]:
    """List the files of a folder, relative to it."""
    found = (os.path.join(above, name) for above, _, names in os.walk(folder) for name in names)
    return frozenset(os.path.relpath(path, folder) for path in found)


def _pointing(source: str, link: Path, environment: Path) -> str:
    """Return the target of a link: relative when it stays inside the environment."""
    inside = os.path.commonpath([source, environment]) == str(environment)
    return os.path.relpath(source, link.parent) if inside else source


def _link(link: Path, target: str) -> None:
    """Make a link, unless an earlier attempt at this environment did."""
    link.parent.mkdir(parents=True, exist_ok=True)
    if not os.path.lexists(link):
        link.symlink_to(target)


def what_compiles(places: Iterable[str]) -> tuple[str, ...]:
    """Name what compiles CUDA code at run time in these folders of packages."""
    folders = [Path(place) for place in places]
    return tuple(dict.fromkeys(name for file, name in _COMPILING if any((it / file).is_file() for it in folders)))
