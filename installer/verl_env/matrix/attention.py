"""Which attention verl's actor takes, and what to tell verl. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """The attention path verl's actor takes in this row, and the settings that lead it there."""

    path: str
    settings: tuple[str, ...] = ()
