"""What a command returns, and how it reaches the user: data on stdout, everything else on stderr."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from verl_env.errors import VerlEnvError

SCHEMA_VERSION = 1
STATUS = {0: "ok", 1: "differs"}  # by exit code; any other that is no error is "failed"
quiet = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a command found out: `data` for `--json`, `text` for people, both printed once, by cli.main."""

    data: dict[str, Any] = field(default_factory=dict)
    text: str = ""
    exit_code: int = 0


def envelope(command: str, result: Result, errors: tuple[VerlEnvError, ...] = ()) -> str:
    """Return the one JSON object of `--json`: sorted keys, two spaces."""
    import json

    plain = {
        "schema_version": SCHEMA_VERSION,
        "command": command,
        "status": "error" if errors else STATUS.get(result.exit_code, "failed"),
        "exit_code": result.exit_code,
        "data": result.data,
        "errors": [
            {"code": err.code, "message": err.message, "hint": err.hint, "details": list(err.details)} for err in errors
        ],
    }
    return json.dumps(plain, indent=2, sort_keys=True, ensure_ascii=False)


def colored(stream: TextIO) -> bool:
    """Whether `stream` gets colour: NO_COLOR beats FORCE_COLOR beats being a terminal (no-color.org)."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty()


def paint(text: str, style: str, stream: TextIO) -> str:
    """Wrap `text` in one of bold, dim, red, green, yellow; meaning never rests on it."""
    codes = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33"}
    return f"\033[{codes[style]}m{text}\033[0m" if colored(stream) else text


def note(line: str) -> None:
    """Say on stderr what is being done, unless asked to be quiet."""
    if not quiet:
        print(line, file=sys.stderr, flush=True)


def warn(line: str) -> None:
    """Say on stderr what the user should know and may have to act on."""
    print(f"{paint('warning:', 'yellow', sys.stderr)} {line}", file=sys.stderr, flush=True)


def show_error(err: VerlEnvError) -> None:
    """Print what happened, its evidence, and one hint."""
    print(f"{paint('error:', 'red', sys.stderr)} {err.message}", file=sys.stderr)
    for line in err.details:
        print(f"  {line}", file=sys.stderr)
    if err.hint:
        print(f"\n{paint('hint:', 'bold', sys.stderr)} {err.hint}", file=sys.stderr, flush=True)


def human_bytes(count: float) -> str:
    """Return a size in decimal units, as package indexes and disks are sold: `4.4 GB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:  # noqa: PLR2004 - the unit's step
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
