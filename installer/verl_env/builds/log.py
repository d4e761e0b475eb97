"""What a build says: how far it is, and what really went wrong. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

MEMORY, DISK, COMPILER, OTHER = "memory", "disk", "compiler", "other"

# ninja, at the end of each step; of one that failed, the next line says so.
_DONE = re.compile(r"^\[(\d+)/(\d+)\][ \t]*(.*)$(?!\nFAILED: )", re.MULTILINE)
_OBJECT = re.compile(r"([\w.+-]+)\.o\b")
_FAILED = re.compile(r"^FAILED: .*$", re.MULTILINE)
_STEP = re.compile(r"^(\[\d+/\d+\]|ninja: )")
# Words of compilers and of what kills them; warnings name `-Werror` and the like, and are none of these.
_ERROR = re.compile(
    r"(?:\bfatal error:|(?<![\w-])error(?: ?:|\s*#)|\bfatal\s+:|\bKilled\b|died due to signal|\bundefined reference\b"
    r"|No space left on device|Disk quota exceeded|command not found|No such file or directory"
    r"|cannot allocate memory|virtual memory exhausted|out of memory|Terminated signal)",
    re.IGNORECASE,
)
_PYTHON = re.compile(r"^(?:[\w.]+\.)?[A-Z]\w*(?:Error|Exception|Interrupt|Exit)\b.*$")
_NO_MEMORY = re.compile(
    r"\bKilled\b|died due to signal 9|cannot allocate memory|virtual memory exhausted|out of memory|Killed signal",
    re.IGNORECASE,
)
_NO_ROOM = re.compile(r"No space left on device|Disk quota exceeded")
_SHOWN = 12  # lines of a failure
_LONGEST = 400  # characters of a line: a compiler's command has thousands


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step that ended: the `done`-th of `total`, and the file it was about."""

    done: int
    total: int
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a build failed: its `cause` (one of the four above) and the `lines` that say it, the telling one last."""

    cause: str
    lines: tuple[str, ...]


def steps_in(text: str) -> tuple[Step, ...]:
    """Return the steps that ended in a piece of the log."""
    return tuple(Step(done=int(it[1]), total=int(it[2]), what=_what(it[3])) for it in _DONE.finditer(text))


def _what(command: str) -> str:
    """Name the object that a command makes; the start of it when it makes none."""
    objects = _OBJECT.findall(command.rpartition(" -o ")[2]) or _OBJECT.findall(command)
    return objects[0] if objects else command.strip()[:60]


def failure_in(text: str) -> Failure:
    """Find what went wrong: the first step that failed, else the last error, else the last line."""
    block = _first_failed(text)
    lines = [line.strip() for line in block.splitlines() if _ERROR.search(line) and not _is_command(line)]
    if not lines:
        said = [line.strip() for line in text.splitlines() if line.strip()]
        lines = [line for line in said if _PYTHON.match(line)][-1:] or said[-1:]
    shown = tuple(line[:_LONGEST] for line in dict.fromkeys(lines))[:_SHOWN]
    return Failure(cause=_cause(block, lines), lines=shown)


def _first_failed(text: str) -> str:
    """Return what belongs to the first failed step: up to the next one; the whole text when no step failed."""
    start = _FAILED.search(text)
    if start is None:
        return text
    kept = []
    for line in text[start.start() :].splitlines()[1:]:
        if _STEP.match(line):
            break
        kept.append(line)
    return "\n".join(kept)


def _is_command(line: str) -> bool:
    """Whether a line is a compiler's command, which names files and flags such as `-Werror`."""
    return " -c " in line and " -o " in line


def _cause(block: str, lines: list[str]) -> str:
    if _NO_ROOM.search(block):
        return DISK
    if any(_NO_MEMORY.search(line) for line in lines):
        return MEMORY
    return COMPILER if any(_ERROR.search(line) for line in lines) else OTHER
