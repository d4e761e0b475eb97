"""What people are told of an environment's attention. Pure, and light: a repeated installation says it at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def attention_lines(attention: str | None, settings: Sequence[str]) -> list[str]:
    """Say which attention verl's actor takes, and what to tell verl; nothing for a set without a GPU."""
    if attention is None:
        return []
    if not settings:
        return [f"attention: {attention}, which verl takes without any setting"]
    return [f"attention: {attention}; verl needs these settings with this row:", *(f"  {it}" for it in settings)]
