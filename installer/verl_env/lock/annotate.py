"""Differences as GitHub's workflow commands, which it shows beside the lines of the file. Pure.

Source: GitHub Actions documentation, "Workflow commands for GitHub Actions".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from verl_env.lock.compare import Difference

_MOST = 10  # errors of a step that GitHub shows


def workflow_commands(file: str, differences: Sequence[Difference]) -> tuple[str, ...]:
    """Return one `::error` line a difference; the last says how many more there are, where they are too many."""
    shown = differences if len(differences) <= _MOST else differences[: _MOST - 1]
    said = [(it.line or 1, it.text) for it in shown]
    if len(differences) > len(shown):
        said.append((1, f"and {len(differences) - len(shown)} more differences; see the log"))
    place = f"file={_property(file)}"
    return tuple(f"::error {place},line={line},title=lockfile differs::{_message(text)}" for line, text in said)


def _message(text: str) -> str:
    """Escape the message of a command."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    """Escape a property of a command."""
    return _message(text).replace(":", "%3A").replace(",", "%2C")
