"""What there is to know of one kind of finding, whatever was seen."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """One kind of finding. `request` is what to send to an administrator, where nobody else can act."""

    area: str
    title: str
    why: str
    request: str = ""
