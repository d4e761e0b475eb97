"""A row resolved again for a lock, nothing held where it was. An edge."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from verl_env.errors import ResolveError
from verl_env.lock.wishes import applying, refuse_clashes, refuse_wrong_files, unmet, versions_of
from verl_env.matrix.resolve import resolve_row
from verl_env.matrix.rows import Reasoned

if TYPE_CHECKING:
    from verl_env.indexes import Indexes
    from verl_env.lock.extend import Wanted
    from verl_env.matrix.facts import Facts
    from verl_env.matrix.matrix import Entry
    from verl_env.matrix.pins import Pins


def resolve_afresh(entry: Entry, base: Pins, wanted: Wanted, indexes: Indexes, facts: Facts) -> Pins:
    """Resolve the row's own requirements again, with the wishes, as `matrix resolve` would; nothing is pinned."""
    asked, head = entry.row.resolve, base.header
    if asked is None:
        raise ResolveError(
            f"row `{entry.id}` has no [resolve] table, so it cannot be resolved", hint="leave out --resolve"
        )
    wishes = applying((*wanted.wishes, *wanted.upgrade), head.python, head.arch)
    steered = replace(
        asked,
        requirements=(*asked.requirements, *(it.text for it in wishes if not it.constraint)),
        constraints=(*asked.constraints, *(Reasoned(spec=it.text, why=it.origin) for it in wishes if it.constraint)),
        exclude_newer=wanted.exclude_newer or asked.exclude_newer,
    )
    row = replace(entry.row, resolve=steered)
    result = resolve_row(replace(entry, row=row), head.python, head.arch, indexes, facts)
    refuse_clashes(unmet(wishes, versions_of(result.pins, entry.row.set)), entry.id, {})
    refuse_wrong_files(wishes, result.pins)
    return result
