"""The variables an environment needs, decided from what this node has. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.version import Version

from verl_env.node.facts import Toolkit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from verl_env.lock.lockfile import Table

# Variables that programs take for unset when they are empty: where nothing can be unset, these are written so.
EMPTY_IS_UNSET = ("PYTHONPATH", "PYTHONHOME", "CUDA_HOME", "CUDA_PATH")
# Those that keep other people's things out: `--inherit` leaves them away.
SEALING = ("PYTHONPATH", "PYTHONNOUSERSITE", "CONDA_PREFIX")
SET, PREPEND, UNSET, DEFAULT = "set", "prepend", "unset", "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """One variable: `how` it changes, and `why`.

    `how` is set, prepend (to a list separated by colons), unset, or default (set where it is not, or empty).
    """

    name: str
    value: str
    how: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What of this node decides the exports.

    `caches` are the variables of places to keep things in; `library_folder` holds the only libcuda.so.1 that programs
    find, when they find it through LD_LIBRARY_PATH alone. `toolkits` come in the order in which they are preferred;
    `compiling` names what in the environment compiles CUDA code at run time.
    """

    toolkits: tuple[Toolkit, ...] = ()
    caches: tuple[Export, ...] = ()
    library_folder: str | None = None
    extra: tuple[Export, ...] = ()
    compiling: tuple[str, ...] = ()


def exports_of(table: Table, folder: str, around: Surroundings) -> tuple[tuple[Export, ...], tuple[str, ...]]:
    """Return the exports, and notes on what will not work without something that this node lacks."""
    notes: list[str] = []
    found = _cuda_home(table.cuda, around, notes) if table.cuda else []  # before PATH: the last prepend is in front
    found += [
        Export(name="VIRTUAL_ENV", value=folder, how=SET, why="the environment"),
        Export(name="PATH", value=f"{folder}/bin", how=PREPEND, why="its programs"),
        Export(name="PYTHONNOUSERSITE", value="1", how=SET, why="~/.local must not leak in"),
        Export(name="PYTHONPATH", value="", how=UNSET, why="other people's modules must not leak in"),
        Export(name="PYTHONHOME", value="", how=UNSET, why="it would point Python elsewhere"),
        Export(name="CONDA_PREFIX", value="", how=UNSET, why="torch's inductor links conda's libraries"),
    ]
    found += around.caches
    if around.library_folder:
        why = "libcuda.so.1 is found nowhere else"
        found.append(Export(name="LD_LIBRARY_PATH", value=around.library_folder, how=PREPEND, why=why))
    if "ray" in table.set:
        why = "else Ray gives its workers the driver's `uv run` in place of this environment"
        found.append(Export(name="RAY_ENABLE_UV_RUN_RUNTIME_ENV", value="0", how=SET, why=why))
    found += [Export(name=name, value=value, how=SET, why="the row") for name, value in table.exports.items()]
    found += around.extra
    return tuple(found), tuple(notes)


def _cuda_home(cuda: str, around: Surroundings, notes: list[str]) -> list[Export]:
    """Name the toolkit of the row's minor; never one of another minor (its headers and nvcc would not agree).

    CUDA_PATH is the other name that programs know it by (torch, flashinfer and CMake read both).
    """
    for toolkit in around.toolkits:
        if toolkit.version and Version(toolkit.version).release[:2] == Version(cuda).release[:2]:
            why = f"nvcc {toolkit.version} is of the row's CUDA {cuda} ({toolkit.source})"
            return [
                Export(name="CUDA_HOME", value=toolkit.path, how=SET, why=why),
                Export(name="CUDA_PATH", value=toolkit.path, how=SET, why="the same"),
                Export(name="PATH", value=f"{toolkit.path}/bin", how=PREPEND, why="nvcc"),
            ]
    notes.append(_without_toolkit(cuda, around))
    why = f"no toolkit of CUDA {cuda} is here"
    return [Export(name=name, value="", how=UNSET, why=why) for name in ("CUDA_HOME", "CUDA_PATH")]


def _without_toolkit(cuda: str, around: Surroundings) -> str:
    """Say which toolkits were looked at, and name what will not work."""
    others = [f"{it.version or it.error} at {it.path}" for it in around.toolkits]
    found = f" (found: {', '.join(others)})" if others else ""
    compiling = ", ".join(around.compiling) or "whatever compiles CUDA code at run time"
    return (
        f"no CUDA {cuda} toolkit is on this node{found}: CUDA_HOME is not set. "
        f"Without nvcc these do not work: {compiling}"
    )


def applied(exports: tuple[Export, ...], environ: Mapping[str, str]) -> dict[str, str]:
    """Return `environ` with the exports applied; a folder already at the front of a list is not added twice."""
    result = dict(environ)
    for export in exports:
        if export.how == UNSET:
            result.pop(export.name, None)
        elif export.how == SET:
            result[export.name] = export.value
        elif export.how == DEFAULT:
            result[export.name] = result.get(export.name) or export.value
        else:
            rest = [part for part in result.get(export.name, "").split(":") if part and part != export.value]
            result[export.name] = ":".join([export.value, *rest])
    return result
