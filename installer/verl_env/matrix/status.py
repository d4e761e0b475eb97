"""A row's status: computed from evidence, never typed. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from verl_env.matrix.pins import PinsHeader
    from verl_env.matrix.rows import Evidence, Row

# Each level includes those before it. `declared`: an upstream file says so. `resolved`: pins exist. `imported`:
# installed from them, smoke imports passed. `exercised`: behaviour checks passed. `gpu`: kernels ran.
LEVELS = ("declared", "resolved", "imported", "exercised", "gpu")
BROKEN = "known-broken"
LEAST_STATUS = "exercised"  # the lowest that is chosen unasked


def status_of(row: Row, pins: PinsHeader | None) -> str:
    """Return the status of one variant of a row: evidence counts only for the pins whose digest it names."""
    if row.broken:
        return BROKEN
    if pins is None:
        return "declared"
    return max((it.level for it in evidence_of(row, pins)), key=LEVELS.index, default="resolved")


def evidence_of(row: Row, pins: PinsHeader) -> tuple[Evidence, ...]:
    """Return the evidence that was shown on exactly these pins."""
    return tuple(it for it in row.evidence if it.pins == pins.digest and it.level in LEVELS)


def proved(status: str, least: str) -> bool:
    """Whether a status is at least `least`; `known-broken` never is."""
    return status in LEVELS and LEVELS.index(status) >= LEVELS.index(least)
