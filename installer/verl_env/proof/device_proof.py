"""The `device` level as one run: device code of the installed packages is read, and held against the GPUs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from verl_env.files import write_atomically
from verl_env.matrix.device_code import ELF_HEADER, Unit, cubin_architecture, in_order
from verl_env.matrix.libraries import Library, built_for, read_library
from verl_env.matrix.load import load_matrix
from verl_env.matrix.support import carry
from verl_env.proof.device import Kind, judge_device, said, written
from verl_env.proof.elf import is_elf
from verl_env.proof.library_survey import environment_packages
from verl_env.proof.runs import Run

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from verl_env.node.facts import Node
    from verl_env.proof.library_survey import Environment
    from verl_env.proof.packages import Package

LEVEL, NAME = "device", "architectures"
# NVIDIA's own libraries choose among kernels of many lists at run time; NCCL's are compiled like everybody's.
_NVIDIA, _NCCL = "nvidia-", "nvidia-nccl-"


def prove_device(environment: Environment, node: Node, log_folder: Path) -> Run:
    """Return the run; it passes when each package that has device code has some for each GPU of the node."""
    started = time.monotonic()
    packages = environment_packages(environment)
    built = read_built(packages)
    kinds = [Kind(name=gpu.name, compute_capability=gpu.compute_capability or "") for gpu in node.gpus]
    kinds = list(dict.fromkeys(kinds))
    ptx_ok = carry(environment.cuda, node, load_matrix(None).facts, for_cpu=False).ptx_ok
    verdicts = judge_device(built, kinds, ptx_ok=ptx_ok)
    log = log_folder / f"{LEVEL}-{NAME}.log"
    log_folder.mkdir(parents=True, exist_ok=True)
    lines = [f"{name}: {written(unit)}" for name, unit in built.items()]
    cubins = [f"{name}: cubins for {' '.join(found)}" for name, found in read_cubins(packages).items()]
    write_atomically(log, "\n".join([*lines, *cubins, "", said(verdicts, ptx_ok=ptx_ok)]) + "\n")
    return Run(
        level=LEVEL,
        name=NAME,
        passed=bool(verdicts) and all(it.runs for it in verdicts),
        seconds=time.monotonic() - started,
        last_line=said(verdicts, ptx_ok=ptx_ok) if verdicts else "no package has device code",
        log=str(log),
    )


def read_built(packages: Mapping[str, Package]) -> dict[str, Unit]:
    """Return what each package that carries device code was compiled for."""
    found: dict[str, Unit] = {}
    for name, package in packages.items():
        if name.startswith(_NVIDIA) and not name.startswith(_NCCL):
            continue
        libraries: list[Library] = [
            read_library(Path(path), path) for path in package.files if ".so" in path and is_elf(Path(path))
        ]
        if unit := built_for(libraries):
            found[name] = unit
    return found


def read_cubins(packages: Mapping[str, Package]) -> dict[str, tuple[str, ...]]:
    """Return the architectures of packages that carry kernels as single files; what they lack is compiled when used."""
    found = {name: in_order(_architectures(package.files)) for name, package in packages.items()}
    return {name: each for name, each in found.items() if each}


def _architectures(files: Iterable[str]) -> set[str]:
    found = set()
    for path in files:
        if path.endswith(".cubin"):
            with open(path, "rb") as stream:
                if architecture := cubin_architecture(stream.read(ELF_HEADER)):
                    found.add(architecture)
    return found
