"""Which attention verl's actor takes, and what to tell verl. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """The attention path verl's actor takes in this row, and the settings that lead it there.

    `needs` is a package that the path cannot do without and that the row's pins do not have.
    """

    path: str
    settings: tuple[str, ...] = ()
    needs: str = ""

    @property
    def said(self) -> str:
        """The path, and what is missing on it."""
        return f"{self.path} (needs {self.needs}, which the pins do not have)" if self.needs else self.path
