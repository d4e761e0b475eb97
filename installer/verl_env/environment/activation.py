"""An environment about to be used somewhere: its exports, and what of that place's variables may stay."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from verl_env.environment.exports import SEALING, Export, applied
from verl_env.environment.library_path import NAME, Part, joined, judge_parts, owned_libraries
from verl_env.process import clean_environ

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Activation:
    """An environment's folder, its exports, and the libraries that nothing may shadow.

    `environ` and `parts`, its judged LD_LIBRARY_PATH, are of where this runs: what holds whole values is made for it.
    """

    folder: str
    exports: tuple[Export, ...]
    owned: tuple[str, ...] = ()
    environ: Mapping[str, str]
    parts: tuple[Part, ...] = ()


def activation_of(folder: Path, exports: tuple[Export, ...], environ: Mapping[str, str]) -> Activation:
    """Look at what the environment brings, and judge the folders of LD_LIBRARY_PATH."""
    owned = owned_libraries(folder)
    parts = judge_parts(environ.get(NAME, ""), folder, owned)
    return Activation(folder=str(folder), exports=exports, owned=owned, environ=environ, parts=parts)


def sealed_environ(folder: Path, exports: tuple[Export, ...]) -> dict[str, str]:
    """Return the variables that programs of an environment run with here."""
    return sealed(activation_of(folder, exports, clean_environ()))


def sealed(it: Activation) -> dict[str, str]:
    """Return all of `environ` as programs of the environment are to have it."""
    environ = dict(it.environ)
    environ[NAME] = joined(it.parts)
    if not environ[NAME]:
        del environ[NAME]
    return applied(it.exports, environ)


def values_of(it: Activation) -> dict[str, str]:
    """Return the variables that change, with their whole values; a list of which nothing is left is empty."""
    values = sealed(it)
    found = {export.name: values[export.name] for export in it.exports if export.name in values}
    if it.environ.get(NAME, "") != values.get(NAME, ""):
        found[NAME] = values.get(NAME, "")
    return found


def inheriting(it: Activation) -> Activation:
    """Return an activation that leaves alone what others have put in: Python's folders, conda, LD_LIBRARY_PATH."""
    kept = tuple(export for export in it.exports if export.name not in SEALING)
    parts = tuple(replace(part, kept=True, why="--inherit") for part in it.parts)
    return replace(it, exports=kept, owned=(), parts=parts)
