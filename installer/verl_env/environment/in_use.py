"""Which processes of this node still use an environment, as far as /proc tells."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """One process that uses a folder: `how` is the first thing that showed it."""

    pid: int
    name: str
    how: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Users:
    """Users by folder, and how many processes could not be looked at (other users' of this node)."""

    by_folder: dict[Path, tuple[User, ...]]
    hidden: int


def find_users(folders: Iterable[Path], proc: Path = _PROC) -> Users:
    """Look at every process but this one: program, folder, mapped and open files, words, variables.

    Variables and words count because a Python that sleeps has no file of its environment mapped: its program is
    the interpreter that the environment was made from. The variables of the shell that asks do not count.
    """
    named = {folder: {os.fsencode(folder), os.fsencode(os.path.realpath(folder))} for folder in folders}
    found: dict[Path, list[User]] = {folder: [] for folder in named}
    hidden, ours = 0, set(_lineage(proc))
    for entry in proc.iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        traces, seen_all = _traces(entry)
        hidden += not seen_all
        if int(entry.name) in ours:
            traces = [trace for trace in traces if trace[0] not in ("cmdline", "environ")]
        for folder, names in named.items():
            how = next((kind for kind, text in traces if any(_mentions(text, name) for name in names)), None)
            if how:
                found[folder].append(User(pid=int(entry.name), name=_name(entry), how=how))
    return Users(by_folder={folder: tuple(users) for folder, users in found.items()}, hidden=hidden)


def _mentions(text: bytes, name: bytes) -> bool:
    """Whether a text names this folder, and not one whose name only begins like it."""
    at = text.find(name)
    while at >= 0:
        after = text[at + len(name) : at + len(name) + 1]
        if after in (b"", b"/", b"\0", b"\n", b":", b" ", b'"', b"'"):
            return True
        at = text.find(name, at + 1)
    return False


def _traces(process: Path) -> tuple[list[tuple[str, bytes]], bool]:
    """Return what a process shows of the files it uses, and whether everything could be read."""
    traces: list[tuple[str, bytes]] = []
    seen_all = True
    for kind in ("exe", "cwd", "root"):
        try:
            traces.append((kind, os.fsencode(os.readlink(process / kind))))
        except PermissionError:  # noqa: PERF203 - each by itself
            seen_all = False
        except OSError:  # it has ended, or is a thread of the kernel
            continue
    for kind in ("cmdline", "maps", "environ"):
        try:
            traces.append((kind, (process / kind).read_bytes()))
        except PermissionError:  # noqa: PERF203
            seen_all = False
        except OSError:
            continue
    try:
        opened = b"\n".join(os.fsencode(os.readlink(it)) for it in (process / "fd").iterdir())
        traces.append(("open file", opened))
    except PermissionError:
        seen_all = False
    except OSError:
        pass
    return traces, seen_all


def _name(process: Path) -> str:
    try:
        return (process / "comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return "?"


def _lineage(proc: Path) -> Iterator[int]:
    """Yield this process and those it came from: a shell that has the environment's variables is no job."""
    pid = os.getpid()
    while pid > 1:
        yield pid
        try:
            pid = int((proc / str(pid) / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            return
