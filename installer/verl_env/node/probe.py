"""Measure this node: every probe at once, each with a time limit, and none of them able to end us."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

from verl_env.node import system
from verl_env.node.answers import LibraryAnswer
from verl_env.node.driver_stack import assemble_stack
from verl_env.node.facts import Finding, Node
from verl_env.node.folders import probe_folders
from verl_env.node.host import Host
from verl_env.node.interpreters import find_interpreters
from verl_env.node.later import Later
from verl_env.node.libcuda import ask_libcuda
from verl_env.node.nvml import ask_nvml
from verl_env.node.toolkits import find_toolkits

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

T = TypeVar("T")
_LEAST = 0.1


def probe_node(
    *,
    folders: Mapping[str, Path] = MappingProxyType({}),
    interpreters: bool = True,
    host: Host | None = None,
    limit: float | None = None,
) -> Node:
    """Return what this machine is. What cannot be read is None, with a finding when that is a fault.

    `limit` is how many seconds all of it may take (default: two children one after the other, and a little).
    """
    host = host or Host()
    failed: list[Finding] = []
    asked_nvml = Later(partial(ask_nvml, host))
    asked_cuda = Later(partial(ask_libcuda, host))
    toolkits = Later(partial(find_toolkits, host))
    pythons = Later(partial(find_interpreters, host)) if interpreters else None
    rooms = Later(partial(probe_folders, host, folders))
    until = time.monotonic() + (2 * host.patience + 1 if limit is None else limit)
    cuda = _get_library("libcuda", asked_cuda, until, failed)
    nvml = _get_library("NVML", asked_nvml, until, failed)
    stack = assemble_stack(replace(host, patience=_left(until, host.patience)), nvml, cuda)
    glibc = system.read_glibc()
    return Node(
        driver=stack.driver,
        driver_api=stack.driver_api,
        libcuda=stack.libcuda,
        nvml=stack.nvml,
        gpus=stack.gpus,
        gpu_pairs=stack.gpu_pairs,
        nvidia_device=stack.nvidia_device,
        toolkits=_get("toolkits", toolkits, (), until, failed),
        glibc=glibc,
        machine=system.read_machine(),
        cpu=system.read_cpu(host),
        distribution=system.read_distribution(host),
        kernel=system.read_kernel(),
        container=stack.container,
        wsl=stack.wsl,
        scheduler=system.find_scheduler(host),
        other_accelerators=stack.other_accelerators,
        interpreters=_get("interpreters", pythons, (), until, failed) if pythons else (),
        folders=_get("folders", rooms, (), until, failed),
        findings=(*stack.findings, *(() if glibc else (_no_glibc(),)), *failed),
    )


def _left(until: float, most: float = float("inf")) -> float:
    """Return the seconds that are left until a moment of time.monotonic(), a little in any case."""
    return min(most, max(_LEAST, until - time.monotonic()))


def _get(name: str, started: Later[T], otherwise: T, until: float, failed: list[Finding]) -> T:
    """Return a probe's result; when there is none, add a finding and go on without it."""
    try:
        return started.get(_left(until))
    except Exception as err:  # noqa: BLE001 - whatever it was, the other facts are still worth having
        failed.append(
            Finding(
                id="probe-failed",
                severity="warning",
                what=f"the {name} probe gave no answer",
                evidence=f"{type(err).__name__}: {err}",
                why="what it would have found is missing from this answer",
                action="run `verl-env detect -v` and report what it prints",
            )
        )
        return otherwise


def _get_library(library: str, started: Later[LibraryAnswer], until: float, failed: list[Finding]) -> LibraryAnswer:
    """Return what a library answered; one whose child cannot even be killed is stuck in the driver."""
    try:
        return started.get(_left(until))
    except TimeoutError:
        return LibraryAnswer(library=library, found=True, fault="hung", said="its process hangs in the kernel")
    except Exception:  # noqa: BLE001 - _get makes it a finding
        return _get(library, started, LibraryAnswer(library=library, found=False), until, failed)


def _no_glibc() -> Finding:
    """Say that this is another C library."""
    return Finding(
        id="no-glibc",
        severity="error",
        what="this system's C library is not glibc",
        evidence="confstr CS_GNU_LIBC_VERSION has no answer",
        why="torch, vLLM and SGLang publish wheels for glibc only",
        action="use a distribution with glibc (Debian, Ubuntu, RHEL and their like)",
    )
