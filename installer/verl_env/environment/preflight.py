"""Everything that would stop an installation, looked at before its first byte."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.version import Version

from verl_env import paths, uv
from verl_env.errors import LockError, PreflightError
from verl_env.node.folders import nearest_existing, probe_folders
from verl_env.node.host import Host
from verl_env.node.interpreters import find_interpreters
from verl_env.output import human_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from verl_env.lock.lockfile import Table
    from verl_env.node.facts import Folder, Interpreter, Node

# Before `matrix prove` has measured a row: unpacked GPU stacks were 2.1 to 2.3 times their wheels (facts of 2026-11).
_UNPACKED = 2.4
# Of a stack's bytes, what is made anew in each environment: bytecode was 17 % of the CPU row (2026-11).
_BYTECODE = 0.25
_KIND_ORDER = ("uv", "system", "path", "pyenv", "conda")


def check_lock_fits(table: Table, node: Node) -> None:
    """Refuse a lock that this node cannot run; raises LockError with what it needs and what is here."""
    machine = os.uname().machine
    if table.arch != machine:
        raise LockError(
            f"the lock is for {table.arch}, and this machine is {machine}",
            hint=f"write one for it: verl-env lock --arch {machine}",
        )
    if table.glibc and node.glibc and Version(node.glibc.value) < Version(table.glibc):
        raise LockError(
            f"the lock needs glibc >= {table.glibc}, and this node has {node.glibc.value}",
            hint="choose a row for this node: verl-env matrix explain",
        )
    if not table.driver or (node.libcuda and node.libcuda.compat and node.libcuda.works):
        return
    if node.driver is None:
        raise LockError(
            f"the lock is for CUDA {table.cuda}, and no NVIDIA driver is loaded here",
            hint="to build for GPU nodes on this machine, describe one: --driver VERSION",
        )
    if Version(node.driver.version) < Version(table.driver):
        raise LockError(
            f"the lock needs driver >= {table.driver} (CUDA {table.cuda}), and this node has {node.driver.version}",
            hint="choose a row for this node: verl-env matrix explain",
        )


def check_place(folder: Path) -> None:
    """Refuse a place that we cannot write to, or where anybody on this machine could put files among ours.

    A folder that all may write to is only safe where each may remove nothing but his own (/tmp: the sticky bit).
    Raises PreflightError.
    """
    target, cache = _target_and_cache(folder)
    for where, hint in ((target, "name another folder: --home DIR"), (cache, "name another cache: UV_CACHE_DIR")):
        if not where.writable:
            raise PreflightError(
                f"`{where.path}` cannot be written{f': {where.error}' if where.error else ''}", hint=hint
            )
    place = nearest_existing(folder.parent)
    for one in (place, *place.parents):
        mode = one.stat().st_mode
        if mode & stat.S_IWOTH and not (mode & stat.S_ISVTX):
            raise PreflightError(
                f"anybody may write to `{one}` (mode {stat.S_IMODE(mode):04o}): environments in it are not safe",
                hint=f"chmod o-w {one}, or name another folder: --home DIR",
            )
    about = place.stat()
    if about.st_uid not in (0, os.geteuid()) and about.st_mode & stat.S_ISVTX and about.st_mode & stat.S_IWOTH:
        raise PreflightError(
            f"`{place}` belongs to another user, and anybody may write to it",
            hint="name another folder: --home DIR",
        )


def check_room(table: Table, folder: Path, is_cached: Callable[[], bool] = lambda: False) -> tuple[Folder, ...]:
    """Refuse when the target or uv's cache has no room for what the lock says it needs; return both folders.

    `is_cached` is asked only when space seems short: whether uv's cache has every file, so that nothing is fetched,
    and on one file system the environment is hard links and the bytecode.
    """
    target, cache = _target_and_cache(folder)
    need = table.installed_bytes or int(table.download_bytes * _UNPACKED)
    linked = _device(target) == _device(cache)
    # On one file system, the environment is hard links into the cache; on two, it is a copy.
    needs = {cache.role: (cache, need)} if linked else {it.role: (it, need) for it in (target, cache)}
    if any(_is_short(place, bytes_, table) for place, bytes_ in needs.values()) and is_cached():
        needs = {cache.role: (cache, int(need * _BYTECODE))} if linked else {target.role: (target, need)}
    for place, bytes_ in needs.values():
        _refuse_if_short(place, bytes_, table)
    return target, cache


def _target_and_cache(folder: Path) -> tuple[Folder, ...]:
    return probe_folders(Host(), {"environments": folder, "cache": paths.uv_cache()})


def _is_short(place: Folder, need: int, table: Table) -> bool:
    few = place.free_inodes and table.installed_files and place.free_inodes < table.installed_files
    return bool((place.free_bytes is not None and place.free_bytes < need) or few)


def _refuse_if_short(place: Folder, need: int, table: Table) -> None:
    """Raise PreflightError with what is free and what is needed."""
    if not _is_short(place, need, table):
        return
    if place.free_bytes is not None and place.free_bytes < need:
        raise PreflightError(
            f"no space: `{place.path}` has {human_bytes(place.free_bytes)} free, and "
            f"{human_bytes(need)} are needed ({place.filesystem})",
            hint="free some, name another folder with --home, or skip this check with --no-space-check",
        )
    raise PreflightError(
        f"no inodes: `{place.path}` has {place.free_inodes} left, and {table.installed_files} are needed",
        hint="name another folder with --home, or skip this check with --no-space-check",
    )


def _device(folder: Folder) -> int | None:
    """Return the device number of the nearest existing parent: hard links need the same one."""
    try:
        return nearest_existing(Path(folder.path)).stat().st_dev
    except OSError:
        return None


def usable(interpreters: Iterable[Interpreter]) -> tuple[Interpreter, ...]:
    """Return those that start, are CPython and of this machine's architecture; best first.

    One with Python.h comes before one without (Triton compiles against it), then uv's own, the system's, pyenv's
    and conda's, then the newest patch.
    """
    machine = os.uname().machine
    good = [it for it in interpreters if it.starts and it.version and it.implementation in (None, "cpython")]
    good = [it for it in good if it.machine in (None, machine)]
    good.sort(key=lambda it: Version(it.version or "0"), reverse=True)
    good.sort(key=lambda it: (not it.headers, _KIND_ORDER.index(it.kind) if it.kind in _KIND_ORDER else 9))
    return tuple(good)


def minor_of(version: str) -> str:
    """Return `3.12` of `3.12.1`."""
    return ".".join(str(part) for part in Version(version).release[:2])


def find_python(minor: str, *, fetch: bool = True) -> Interpreter:
    """Return a Python of this minor: found here, or brought by uv; raises PreflightError when there is none."""
    found = usable(find_interpreters(Host()))
    for interpreter in found:
        if minor_of(interpreter.version or "0") == minor:
            return interpreter
    said: tuple[str, ...] = ()
    if fetch:
        done = uv.fetch_python(minor)
        said = tuple(line.strip() for line in done.tail(4))
        if done.returncode == 0:
            for interpreter in usable(find_interpreters(Host())):
                if minor_of(interpreter.version or "0") == minor:
                    return interpreter
    here = ", ".join(dict.fromkeys(it.version or "" for it in found)) or "none"
    raise PreflightError(
        f"no Python {minor} is on this node (found: {here}), and uv could not bring one",
        details=said,
        hint=f"install python{minor} with your system's packages, pyenv or conda, or choose by --python",
    )
