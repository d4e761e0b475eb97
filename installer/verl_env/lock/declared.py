"""What a checkout declares, held against the packages it is put over. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from verl_env.lock.wishes import Unmet, Wish, applying, unmet, versions_of

if TYPE_CHECKING:
    from verl_env.lock.table import Editable
    from verl_env.matrix.pins import Pin
    from verl_env.matrix.rows import Row

RULE = "editable-requirement"


def row_extras(row: Row) -> dict[str, tuple[str, ...]]:
    """Return the extras that a row installs packages with: `verl[vllm]==0.9.1` gives `vllm` for verl."""
    found: dict[str, set[str]] = {}
    for text in row.resolve.requirements if row.resolve else ():
        requirement = Requirement(text)
        found.setdefault(canonicalize_name(requirement.name), set()).update(requirement.extras)
    return {name: tuple(sorted(extras)) for name, extras in found.items()}


def broken_by(editable: Editable, pins: tuple[Pin, ...], row: Row, python: str, arch: str) -> tuple[Unmet, ...]:
    """Return what the checkout declares and the pins do not give; what the row overrides is not asked of them."""
    if not editable.dependencies:
        return ()
    overridden = {canonicalize_name(Requirement(it.spec).name) for it in (row.resolve.overrides if row.resolve else ())}
    origin = f"declared by {editable.name}"
    wishes = applying((Wish(text=it, origin=origin) for it in editable.dependencies), python, arch)
    asked = tuple(it for it in wishes if it.name not in overridden and it.name != editable.name)
    return unmet(asked, versions_of(pins, row.set))
