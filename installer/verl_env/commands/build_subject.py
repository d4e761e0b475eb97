"""What `build` is about: the row, its build, the environment that it is compiled in, and this node's compilers."""

from __future__ import annotations

import os
import shlex
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from verl_env import output, paths, process
from verl_env.builds.inputs import inputs_of
from verl_env.builds.jobs import jobs_for
from verl_env.builds.looking import Place
from verl_env.builds.make import Making, describe
from verl_env.builds.memory import cores, read_memory
from verl_env.builds.record import Maker, same_torch
from verl_env.environment.activation import sealed_environ
from verl_env.environment.prove import subject_of
from verl_env.environment.receipt import find_environment, read_receipt
from verl_env.environment.standing import current_folder, standing
from verl_env.errors import NoDeviceError, NoEnvironmentError, PreflightError, UsageError
from verl_env.indexes import read_indexes
from verl_env.matrix.builds import targets_for
from verl_env.matrix.load import load_matrix
from verl_env.node.host import Host
from verl_env.node.probe import probe_node
from verl_env.node.system import read_cpu, read_glibc
from verl_env.node.toolkits import read_toolkit
from verl_env.output import human_bytes

if TYPE_CHECKING:
    import argparse

    from verl_env.builds.inputs import Target
    from verl_env.environment.receipt import Receipt
    from verl_env.indexes import Indexes
    from verl_env.matrix.builds import Build
    from verl_env.matrix.matrix import Entry, Matrix

_SECONDS = 60.0  # for a compiler to say its version
ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What a build is for. `variables` are those that programs of the environment run with."""

    matrix: Matrix
    entry: Entry
    build: Build
    folder: Path
    receipt: Receipt
    indexes: Indexes
    variables: dict[str, str]
    target: Target
    headers: str | None

    @property
    def where(self) -> Place:
        """The environment, as a wheel is tried in it."""
        return Place(subject=subject_of(self.folder, self.receipt), variables=self.variables)


def row_of(args: argparse.Namespace) -> Entry:
    """Return the row that is named, or that of the current environment."""
    return _entry(load_matrix(args.matrix), args)


def _entry(matrix: Matrix, args: argparse.Namespace) -> Entry:
    row = args.row or (find_environment(args.environment)[1].row)
    entry = matrix.entries.get(row)
    if entry is None:
        raise UsageError(f"no row is called `{row}`", hint="see `verl-env matrix list`")
    return entry


def read_build(entry: Entry, package: str) -> Build:
    """Return a row's build of a package; raises UsageError naming those that the row has."""
    for build in entry.row.build:
        if build.package == package.lower().replace("_", "-"):
            return build
    named = ", ".join(it.package for it in entry.row.build)
    raise UsageError(
        f"row {entry.id} names no build of `{package}`",
        hint=f"it names {named}" if named else "write one under [[build]] in a matrix of your own: docs/build.md",
    )


def indexes_of(args: argparse.Namespace) -> Indexes:
    """Return the indexes in use, the folders of `--find-links` first."""
    indexes = read_indexes(args.index)
    folders = [str(Path(it).expanduser().absolute()) for it in args.find_links]
    if missing := [it for it in folders if not Path(it).is_dir()]:
        raise UsageError(f"no folder at `{missing[0]}`", hint="name the folder that holds the files: --find-links DIR")
    return replace(indexes, find_links=(*folders, *indexes.find_links))


def read_subject(args: argparse.Namespace) -> Subject:
    """Find the row, its build and an environment of it; raises what says which of them is not there."""
    matrix = load_matrix(args.matrix)
    entry = _entry(matrix, args)
    build = read_build(entry, args.package)
    folder, receipt = _environment(entry, args.environment)
    variables = sealed_environ(folder, receipt.exports)
    target, headers = describe(folder / "bin" / "python", variables)
    if not same_torch(target.torch, entry.row.set["torch"]):
        raise NoEnvironmentError(
            f"{folder.name} has torch {target.torch}, and row {entry.id} is about {entry.row.set['torch']}",
            hint=f"name an environment of the row: --environment NAME, or verl-env install --row {entry.id}",
        )
    return Subject(
        matrix=matrix,
        entry=entry,
        build=build,
        folder=folder,
        receipt=receipt,
        indexes=indexes_of(args),
        variables=variables,
        target=target,
        headers=headers,
    )


def _environment(entry: Entry, asked: str | None) -> tuple[Path, Receipt]:
    """Return the environment that is named, or the current one of this row, or the row's newest."""
    if asked:
        return find_environment(asked)
    current = current_folder()
    receipt = read_receipt(current) if current else None
    if current and receipt and receipt.row == entry.id:
        return current, receipt
    for it in reversed(standing()):
        if it.receipt and it.receipt.row == entry.id and not it.replaced:
            return it.folder, it.receipt
    raise NoEnvironmentError(
        f"no environment of row {entry.id} is here, and a wheel is compiled against its torch",
        hint=f"install it first: verl-env install --row {entry.id}",
    )


def making_of(args: argparse.Namespace, subject: Subject) -> Making:
    """Decide how it is compiled here; raises PreflightError for what this node lacks."""
    build, target = subject.build, subject.target
    cuda_home, nvcc = _toolkit(args.cuda_home, subject)
    maker = _maker(subject)
    if subject.headers is None:
        raise PreflightError(
            f"the Python of {subject.folder.name} has no Python.h, which every extension includes",
            hint="install its headers (python3-dev), or name a folder that has them: CPATH",
        )
    requires = build.requires_on(target.python, target.machine, maker.glibc)
    memory, job = read_memory(Host()), int(build.job_gb * 10**9)
    if memory.available < job:
        output.warn(f"a compiler may need {human_bytes(job)} of memory, and {human_bytes(memory.available)} are free")
    return Making(
        build=build,
        inputs=inputs_of(build, requires, target, nvcc, _architectures(args.capabilities, build)),
        requires=requires,
        where=subject.where,
        cuda_home=cuda_home,
        maker=maker,
        jobs=args.jobs or jobs_for(maker.cores, memory.available, job),
        wait=args.wait,
    )


def capabilities_here() -> tuple[str, ...]:
    """Return the compute capabilities of this node's GPUs."""
    node = probe_node(folders={"environments": paths.environments()})
    return tuple(dict.fromkeys(it.compute_capability for it in node.gpus if it.compute_capability))


def _architectures(asked: list[str], build: Build) -> tuple[str, ...]:
    """Return what to compile for: what was asked for, else what serves this node's GPUs."""
    if ALL in asked:
        return build.architectures
    wanted = tuple(asked) or capabilities_here()
    if not wanted:
        raise NoDeviceError(
            f"no GPU is here, so it is not known what {build.package} should be compiled for",
            hint="name a compute capability, such as --arch 9.0 for H100 and H200, or --arch all",
        )
    targets, left = targets_for(wanted, build.architectures)
    if left:
        raise UsageError(
            f"{build.package} {build.version} cannot be compiled for {', '.join(left)}",
            hint=f"it knows {', '.join(build.architectures)} and what runs their code",
        )
    return targets


def _toolkit(asked: str | None, subject: Subject) -> tuple[str, str]:
    """Return the toolkit to compile with and its nvcc's version; it must be of the build's minor."""
    build = subject.build
    place = asked or subject.variables.get("CUDA_HOME")
    if not place:
        raise PreflightError(
            f"{subject.folder.name} has no CUDA {build.toolkit} toolkit to compile with",
            hint="name one: --cuda-home DIR; rows of CUDA 13 bring their own, when they are installed anew",
        )
    found = read_toolkit(Host(), Path(place).expanduser().absolute(), "--cuda-home")
    if found.version is None:
        raise PreflightError(f"`{found.path}` is no toolkit: {found.error}", hint="name one: --cuda-home DIR")
    if found.version.split(".")[:2] != build.toolkit.split("."):
        raise PreflightError(
            f"`{found.path}` is CUDA {found.version}, and {build.package} is compiled with {build.toolkit}",
            hint="name a toolkit of that minor: --cuda-home DIR",
        )
    return found.path, found.version


def _maker(subject: Subject) -> Maker:
    """Describe this host; raises PreflightError when it has no C++ compiler."""
    host = Host()
    words = shlex.split(os.environ.get("CXX") or "c++")
    if not shutil.which(words[0], path=subject.variables.get("PATH")):
        raise PreflightError(
            f"no C++ compiler is here: `{words[0]}` is not on PATH",
            hint="install g++ (build-essential, gcc-c++), or name one: CXX",
        )
    done = process.run([*words, "--version"], env=subject.variables, timeout=_SECONDS)
    glibc, cpu = read_glibc(), read_cpu(host)
    return Maker(
        compiler=next(iter(done.stdout.splitlines()), words[0]),
        glibc=glibc.value if glibc else "",
        cpu=cpu.value if cpu else "",
        cores=cores(host),
        memory=read_memory(host).total,
    )
