"""What a lockfile should be, from its own table and the matrix: no index is asked. Pure.

A lock that goes beyond its row is held against the same inputs, which its table records. What a resolution added
cannot be found again without an index; it is taken from the lock, and held against every wish.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from packaging.version import Version

from verl_env.lock.build import Change, build_lock
from verl_env.lock.built import parts_in, with_built
from verl_env.lock.compare import Difference
from verl_env.lock.declared import RULE, broken_by
from verl_env.lock.lockfile import sealed
from verl_env.lock.table import Asked, Editable
from verl_env.lock.wishes import Wish, applying, parse_wish, unmet, versions_of
from verl_env.matrix.matrix import Entry
from verl_env.matrix.pins import Pins, make_pins
from verl_env.matrix.status import LEAST_STATUS, proved, status_of
from verl_env.matrix.support import driver_floor

if TYPE_CHECKING:
    from verl_env.lock.lockfile import Lock
    from verl_env.matrix.facts import Facts
    from verl_env.matrix.matrix import Matrix


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """What a lock would be made from now: the row and its pins, what is asked for, and the checkout as it is."""

    entry: Entry
    base: Pins
    asked: Asked
    editable: Editable | None


def expected_lock(found: Lock, inputs: Inputs, facts: Facts) -> Lock:
    """Return the lock that these inputs give, with what only an index could say taken from `found`."""
    base, asked = inputs.base, inputs.asked
    pins = _pins(found, inputs)
    change = None
    if asked != Asked() or inputs.editable:
        change = Change(base=base, asked=asked, editable=inputs.editable, allow=found.table.allow)
    elif found.table.allow:
        change = Change(base=base, allow=found.table.allow)
    lock = with_built(build_lock(inputs.entry, pins, facts, change=change), parts_in(found, inputs.entry.row))
    if found.table.captured is None:
        return lock
    # A row's own packages with a patch, or with more from repositories: what builds those is not the row's to say.
    return sealed(replace(lock, table=replace(lock.table, captured=found.table.captured, build=found.table.build)))


def _pins(found: Lock, inputs: Inputs) -> Pins:
    """Return the row's pins, with the lock's own in place of what wishes may have moved or added."""
    base, asked = inputs.base, inputs.asked
    if asked == Asked():
        return base
    locked = {pin.name: pin for pin in found.pins}
    theirs = {pin.name: pin for pin in base.pins}
    if asked.resolve:
        absent = {inputs.editable.name} if inputs.editable else set()
        pins = {**locked, **{name: theirs[name] for name in absent & theirs.keys()}}
    else:
        free = {parse_wish(it, "--upgrade-package").name for it in asked.upgrade}
        pins = {name: locked.get(name, pin) if name in free else pin for name, pin in theirs.items()}
        pins |= {name: locked[name] for name in found.table.added if name in locked and name not in theirs}
    head = base.header
    return make_pins(head.row, head.python, head.arch, pins=tuple(pins.values()), build=base.build, made=head.made)


def unmet_wishes(found: Lock, inputs: Inputs) -> tuple[Difference, ...]:
    """Return every wish, and every dependency of the checkout, that the locked versions do not meet."""
    table, row = found.table, inputs.entry.row
    wishes = applying(wishes_of(inputs), table.python, table.arch)
    versions = versions_of(found.pins, row.set)
    if inputs.editable:
        versions.setdefault(inputs.editable.name, (inputs.editable.version or "0",))
    differences = [Difference(kind="wish", what=it.wish.name, text=str(it)) for it in unmet(wishes, versions)]
    if inputs.editable and RULE not in table.allow:
        broken = broken_by(inputs.editable, found.pins, row, table.python, table.arch)
        differences += [Difference(kind="checkout", what=it.wish.name, text=str(it)) for it in broken]
    return tuple(differences)


def wishes_of(inputs: Inputs) -> tuple[Wish, ...]:
    """Return what is asked for as wishes; with `resolve`, the row's own requirements and constraints too."""
    asked, row = inputs.asked, inputs.entry.row
    found = [parse_wish(it, "--with") for it in asked.wishes]
    found += [parse_wish(it, "--upgrade-package") for it in asked.upgrade]
    found += [_of_line(line, file.name) for file in asked.files for line in file.lines]
    if asked.resolve and row.resolve:
        found += [parse_wish(it, f"row {inputs.entry.id}") for it in row.resolve.requirements]
        found += [parse_wish(it.spec, f"row {inputs.entry.id}", constraint=True) for it in row.resolve.constraints]
    return tuple(found)


def _of_line(line: str, origin: str) -> Wish:
    """Read a line as `Wish.line` writes it."""
    text, *hashes = line.removeprefix("-c ").split(" --hash=")
    return parse_wish(text, origin, hashes=tuple(hashes), constraint=line.startswith("-c "))


def newer_row(found: Lock, entry: Entry, matrix: Matrix) -> str | None:
    """Return the id of a proved row with a newer verl or engine that runs wherever this lock does, or None."""
    table, row = found.table, entry.row
    best, best_rank = None, _rank(entry)
    for other in matrix.entries.values():
        same = other.row.engine == row.engine and bool(other.row.cuda) == bool(row.cuda) and not other.row.broken
        rank = _rank(other)
        if not same or rank <= best_rank or not _runs(other, found, matrix.facts):
            continue
        if any(it.python == table.python and proved(status_of(other.row, it), LEAST_STATUS) for it in other.pins):
            best, best_rank = other.id, rank
    return best


def _rank(entry: Entry) -> tuple[Version, Version]:
    row = entry.row
    return Version(row.set["verl"]), Version(row.set[row.engine] if row.engine else "0")


def _runs(other: Entry, found: Lock, facts: Facts) -> bool:
    """Whether a row asks for no newer driver and no newer glibc than a lock does."""
    table = found.table
    floor = driver_floor(other.row.cuda, facts)
    if floor and (table.driver is None or Version(floor) > Version(table.driver)):
        return False
    mine = [it for it in other.pins if it.arch == table.arch and it.python == table.python]
    return any(Version(it.glibc or "0") <= Version(table.glibc or "0") for it in mine)


def with_files(asked: Asked, lines: dict[str, tuple[str, ...]]) -> Asked:
    """Return what is asked with the files' lines as they are now; a file that is not there keeps its own."""
    files = tuple(replace(it, lines=lines.get(it.name, it.lines)) for it in asked.files)
    return replace(asked, files=files)
