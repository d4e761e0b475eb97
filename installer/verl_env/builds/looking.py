"""A wheel looked at before it is used: what its libraries were compiled for, whether they would load, whether they do.

It is unpacked beside the environment, and judged as if it were installed in it. An edge.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from verl_env import process
from verl_env.builds import wheel as wheels
from verl_env.builds.failing import BuildError
from verl_env.environment.prove import Subject, libraries_of
from verl_env.matrix.libraries import built_for, read_library
from verl_env.proof.elf import is_elf
from verl_env.proof.library_proof import faults_of, read_known
from verl_env.proof.library_survey import survey_libraries
from verl_env.proof.linkage import judge

if TYPE_CHECKING:
    from collections.abc import Mapping

    from packaging.version import Version

_PROGRAM = Path(__file__).with_name("inside") / "load.py"
_SECONDS = 600.0  # on a network file system torch takes its time
_FAULTS = 6  # of the loader's, named in an error


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """What a wheel's libraries say: how many there are, for which GPUs, and the oldest glibc that they load on."""

    libraries: int
    architectures: tuple[str, ...]
    glibc: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The environment that a wheel is for: what is proved of it, and the variables that its programs run with."""

    subject: Subject
    variables: Mapping[str, str]

    @property
    def python(self) -> Path:
        """Its Python."""
        return self.subject.folder / "bin" / "python"


def unpacked(wheel: Path, folder: Path) -> Looked:
    """Unpack a wheel into an empty folder, and read its libraries."""
    shutil.rmtree(folder, ignore_errors=True)
    wheels.unpack(wheel, folder)
    found = [read_library(it, it.name) for it in sorted(folder.rglob("*.so*")) if it.is_file() and is_elf(it)]
    unit = built_for(found)
    floors: list[Version] = [it.glibc for it in found if it.glibc]
    return Looked(
        libraries=len(found), architectures=unit.binaries if unit else (), glibc=str(max(floors)) if floors else None
    )


def refuse_unloadable(wheel: Path, folder: Path, package: str, imports: tuple[str, ...], place: Place) -> None:
    """Raise BuildError when the loader would refuse a library of an unpacked wheel, or does refuse it."""
    known = read_known()
    surveyed = survey_libraries(replace(libraries_of(place.subject), front=folder), known)
    findings = (*surveyed.unreadable, *judge(surveyed.subject, known))
    faults = [it for it in faults_of(findings) if it.package == package]
    if faults:
        raise _unsuitable(wheel, place, tuple(f"{Path(it.file).name} {it.what}" for it in faults[:_FAULTS]))
    done = process.run(
        [place.python, _PROGRAM, folder, *imports],
        env={**place.variables, "PYTHONDONTWRITEBYTECODE": "1"},
        timeout=_SECONDS,
    )
    if done.returncode != 0:
        raise _unsuitable(wheel, place, done.tail(_FAULTS))


def _unsuitable(wheel: Path, place: Place, details: tuple[str, ...]) -> BuildError:
    return BuildError(
        f"`{wheel.name}` does not load in {place.subject.folder.name}",
        details=details,
        hint="it was compiled against another torch or CUDA; compile it here: verl-env build",
    )
