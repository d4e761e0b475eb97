"""Exports as ENV lines of a Dockerfile, for an image that has an environment inside. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verl_env.environment.exports import EMPTY_IS_UNSET, PREPEND, UNSET

if TYPE_CHECKING:
    from collections.abc import Iterable

    from verl_env.environment.exports import Export


def render_env_lines(exports: Iterable[Export]) -> str:
    """Return one ENV line a variable (Dockerfile reference, ENV and "Environment replacement").

    An image cannot unset what its base has set: such a variable becomes empty, which Python and torch take for unset.
    """
    return "".join(_line(export) for export in exports)


def _line(export: Export) -> str:
    if export.how == UNSET:
        return f'ENV {export.name}=""\n' if export.name in EMPTY_IS_UNSET else ""
    if "\n" in export.value or "\r" in export.value:
        return f"# {export.name} has more than one line, and ENV cannot hold that: set it when the container starts\n"
    value = export.value.replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$")
    if export.how == PREPEND:
        return f'ENV {export.name}="{value}${{{export.name}:+:${export.name}}}"\n'
    return f'ENV {export.name}="{value}"\n'
