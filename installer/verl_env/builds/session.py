"""The programs of one session: what memory they hold, and their end. An edge: reads /proc.

ninja gives each compiler a process group of its own, so that killing the group of a build leaves them at work.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_PAGE = os.sysconf("SC_PAGE_SIZE")
_PAUSE = 0.02  # seconds between two looks at those that were killed


def session_bytes(leader: int) -> int:
    """Return the memory that a session's programs hold now, in bytes."""
    return sum(pages for _, pages in _programs(leader)) * _PAGE


def end_session(leader: int) -> None:
    """Kill every program of a session, and those that they start meanwhile; return when none is left."""
    while found := [program for program, _ in _programs(leader)]:
        for program in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(program, signal.SIGKILL)
        time.sleep(_PAUSE)


def _programs(leader: int) -> Iterator[tuple[int, int]]:
    """Yield each program of a session with its resident pages; one that has ended and waits for its parent is none."""
    for name in os.listdir("/proc"):
        if not name.isdecimal():
            continue
        try:
            with open(f"/proc/{name}/stat", encoding="ascii", errors="replace") as stream:
                words = stream.read().rpartition(")")[2].split()
        except OSError:
            continue
        # proc(5): state is the 3rd field, session the 6th, rss the 24th; the name before them may hold spaces.
        if words[0] not in "ZX" and int(words[3]) == leader:
            yield int(name), int(words[21])
