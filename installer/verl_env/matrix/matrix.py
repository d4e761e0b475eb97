"""A matrix in memory: its facts, its rows, and the header of each row's pins. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from verl_env.matrix.status import BROKEN, LEVELS, status_of

if TYPE_CHECKING:
    from pathlib import Path

    from verl_env.matrix.facts import Facts
    from verl_env.matrix.pins import PinsHeader
    from verl_env.matrix.rows import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A row with where it came from and the pins that exist for it, in the row's own order of Pythons."""

    id: str
    row: Row
    path: Path
    pins: tuple[PinsHeader, ...] = ()
    site: bool = False

    def variants(self, machine: str | None) -> tuple[PinsHeader, ...]:
        """Return the pins for an architecture, or all when it is not known."""
        return tuple(it for it in self.pins if machine in (None, it.arch))

    def variant(self, python: str | None, machine: str | None) -> PinsHeader | None:
        """Return the pins to compare others with: of this architecture and Python as far as there are such."""
        here = self.variants(machine) or self.pins
        return next((it for it in here if it.python == python), next(iter(here), None))

    def status(self, pins: PinsHeader | None = None) -> str:
        """Return the status of one variant, or the best of all."""
        if pins is not None or not self.pins:
            return status_of(self.row, pins)
        found = [status_of(self.row, it) for it in self.pins]
        return BROKEN if BROKEN in found else max(found, key=LEVELS.index)


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """Everything choosing reads."""

    facts: Facts
    entries: dict[str, Entry] = field(default_factory=dict)

    def gpu_names(self) -> dict[str, str]:
        """Return every GPU name and alias with its compute capability, for describing a node by name."""
        return {name: gpu.compute_capability for gpu in self.facts.gpus for name in (gpu.name, *gpu.aliases)}
