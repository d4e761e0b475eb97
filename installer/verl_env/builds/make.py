"""One build from beginning to end: files, source, tools, compilers, the wheel and its record in the wheelhouse."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verl_env import __version__, output, paths, process
from verl_env.builds import wheel as wheels
from verl_env.builds.compile import Work, compile_wheel
from verl_env.builds.failing import BuildError
from verl_env.builds.gather import gather, sha256_of
from verl_env.builds.inputs import Inputs, Target, key_of
from verl_env.builds.jobs import beside
from verl_env.builds.looking import Looked, Place, refuse_unloadable, unpacked
from verl_env.builds.record import BUILT, SCHEMA, Effort, Maker, Record
from verl_env.builds.wheelhouse import Stored, checked, find, store
from verl_env.builds.workplace import Workplace, workplace_of
from verl_env.environment.holding import held
from verl_env.environment.receipt import now
from verl_env.matrix.facts import binary_runs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from verl_env.indexes import Indexes
    from verl_env.matrix.builds import Build
    from verl_env.matrix.facts import Facts
    from verl_env.matrix.pins import Pin

_INSIDE = Path(__file__).with_name("inside")
_SECONDS = 120.0  # for a Python to say what it is
_CACHES = ("sccache", "ccache")  # compiler caches that know nvcc


@dataclass(frozen=True, slots=True, kw_only=True)
class Making:
    """Everything that a build needs to know; made before anything is written.

    `where` is the environment that it is for, `cuda_home` the toolkit that compiles, `maker` this host.
    """

    build: Build
    inputs: Inputs
    requires: tuple[Pin, ...]
    where: Place
    cuda_home: str
    maker: Maker
    jobs: int
    wait: float

    @property
    def key(self) -> str:
        """The key of the result."""
        return key_of(self.inputs)

    @property
    def log(self) -> Path:
        """The one log of every attempt; it outlives the build's folder."""
        return paths.logs() / f"build-{self.build.package}-{self.key}.log"


def make(making: Making, indexes: Indexes, facts: Facts) -> tuple[Stored, bool]:
    """Return the wheel with these inputs, and whether it was compiled now; raises BuildError, and nothing is stored."""
    place = workplace_of(making.key)
    with _explained(place.folder):
        place.folder.parent.mkdir(parents=True, exist_ok=True)
        with held(place.folder, wait=making.wait):
            return _make(making, place, indexes, facts)


@contextlib.contextmanager
def _explained(folder: Path) -> Iterator[None]:
    """Turn what the file system refuses into an error of ours: a full disk is no bug."""
    try:
        yield
    except OSError as err:
        raise BuildError(
            f"`{err.filename or folder}` cannot be written: {err.strerror or err}",
            hint="free some space, or name another folder: --home DIR; what is compiled is kept",
        ) from err


def _make(making: Making, place: Workplace, indexes: Indexes, facts: Facts) -> tuple[Stored, bool]:
    """Do it, one step after the other; the wheel is stored last."""
    if there := find(making.key):  # another builder may have finished it while we waited
        return checked(there), False
    progress = place.begin(_made_by(making))
    gather((making.build.pin, *making.requires), place.inputs, making.inputs.target.python, indexes, facts)
    place.unpack(making.build.sdist.file)
    place.install_tools(making.requires, making.where.python)
    output.note(
        f"compiling {making.build.package} {making.build.version} for {', '.join(making.inputs.architectures)} "
        f"with {beside(making.jobs)}; log: {making.log}"
    )
    work = Work(
        place=place,
        python=making.where.python,
        variables=_variables(making, place),
        log=making.log,
        jobs=making.jobs,
    )
    made, progress, jobs = compile_wheel(work, progress)
    labelled, looked = _labelled(making, made, place)
    effort = Effort(
        seconds=round(progress.seconds, 1),
        compiled=progress.compiled,
        attempts=progress.attempts,
        jobs=jobs,
        peak=progress.peak,
    )
    one = store(_record(making, labelled, looked, effort), labelled)
    place.remove()
    return one, True


def _made_by(making: Making) -> str:
    """Say with what objects were compiled: those of another compiler, toolkit or environment are not linked in."""
    return json.dumps([making.maker.compiler, making.cuda_home, str(making.where.python)])


def _variables(making: Making, place: Workplace) -> dict[str, str]:
    """Return the compilers' variables: the environment's, with the build's tools in front and bytecode left alone."""
    known = making.where.variables
    cache = next((found for name in _CACHES if (found := shutil.which(name))), None)
    return {
        **known,
        "PYTHONPATH": str(place.tools),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PATH": os.pathsep.join(filter(None, (str(place.tools / "bin"), f"{making.cuda_home}/bin", known.get("PATH")))),
        "CUDA_HOME": making.cuda_home,
        "CUDA_PATH": making.cuda_home,
        **({"PYTORCH_NVCC": f"{cache} {making.cuda_home}/bin/nvcc"} if cache else {}),
        **making.inputs.variables,
    }


def _labelled(making: Making, made: Path, place: Workplace) -> tuple[Path, Looked]:
    """Label the wheel, and show that it is what was asked for; raises BuildError."""
    name = wheels.name_of(made.name)
    if (name.package, name.version) != (making.build.package, making.build.version):
        raise BuildError(f"the source made `{made.name}`, and not {making.build.package} {making.build.version}")
    labelled = wheels.relabel(made, making.inputs.target.label, place.out / "labelled")
    folder = place.temporary / "wheel"
    looked = unpacked(labelled, folder)
    has = looked.architectures
    missing = [it for it in making.inputs.architectures if not any(binary_runs(arch, it) for arch in has)]
    if missing:
        raise BuildError(
            f"`{made.name}` has no code for {', '.join(missing)}",
            details=(f"it has code for {', '.join(has) or 'no GPU'}", f"log: {making.log}"),
        )
    refuse_unloadable(labelled, folder, making.build.package, making.build.imports, making.where)
    return labelled, looked


def _record(making: Making, labelled: Path, looked: Looked, effort: Effort) -> Record:
    return Record(
        schema=SCHEMA,
        kind=BUILT,
        key=making.key,
        package=making.build.package,
        version=wheels.name_of(labelled.name).version,
        file=labelled.name,
        size=labelled.stat().st_size,
        sha256=sha256_of(labelled),
        target=making.inputs.target,
        architectures=looked.architectures,
        glibc=looked.glibc,
        made=now(),
        by=f"verl-env {__version__}",
        inputs=making.inputs,
        maker=making.maker,
        effort=effort,
    )


def describe(python: Path, variables: Mapping[str, str]) -> tuple[Target, str | None]:
    """Ask an environment's Python what is compiled against, and where its headers are; raises BuildError."""
    done = process.run([python, _INSIDE / "describe.py"], env=dict(variables), timeout=_SECONDS)
    try:
        says: dict[str, Any] = json.loads(done.stdout)
        target = Target(python=says["python"], machine=says["machine"], torch=says["torch"], cuda=says["cuda"])
    except (ValueError, KeyError, TypeError) as err:
        raise BuildError(
            f"`{python}` does not say which torch it has", details=done.tail(6), hint="build it again: verl-env install"
        ) from err
    return target, says["headers"]
