"""What `install`, `lock` and `bundle` share about wheels that were built here: whether to use them, and what to say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable

    from verl_env.commands.choosing import Situation
    from verl_env.lock.lockfile import Lock
    from verl_env.matrix.builds import Build


def add_built_arguments(group: argparse._ActionsContainer, *, unasked: str) -> None:
    """Add the two switches; `unasked` says what happens without either."""
    group.add_argument(
        "--with-built", action="store_true", help=f"use wheels that `verl-env build` made for the row ({unasked})"
    )
    group.add_argument("--without-built", action="store_true", help="leave them out")


@dataclass(frozen=True, slots=True, kw_only=True)
class Extended:
    """A lock with the built wheels that suit, what to say of them, and the builds of its row that nobody has made."""

    lock: Lock
    offers: tuple[Build, ...] = ()
    notes: tuple[str, ...] = ()


def with_built_wheels(lock: Lock, situation: Situation, args: argparse.Namespace, *, unasked: bool) -> Extended:
    """Put the wheels that suit into the lock; `unasked` is whether it is done without `--with-built`."""
    entry = situation.matrix.entries.get(lock.table.row)
    if entry is None or not entry.row.build:
        return Extended(lock=lock)
    has = {said.package for said in lock.table.built}
    if args.without_built or not (unasked or args.with_built):
        return Extended(lock=lock, offers=tuple(it for it in entry.row.build if it.package not in has))
    # `lock --check` is felt on every commit, and only asks this module for its switches.
    from verl_env.builds.use import usable
    from verl_env.lock.built import with_built

    found = usable(entry, lock.table, situation.node)
    parts = tuple(part for part in found.parts if part.said.package not in has)
    used = (
        f"{part.said.package} {part.pin.version} is used, {part.said.origin} for {_for(part.said.architectures)}"
        for part in parts
    )
    return Extended(
        lock=with_built(lock, parts),
        offers=tuple(build for build in found.offers if build.package not in has),
        notes=(*found.notes, *used),
    )


def _for(architectures: Iterable[str]) -> str:
    return ", ".join(architectures) or "no GPU"


def offer_lines(row: str, offers: Iterable[Build]) -> list[str]:
    """Offer the builds that nobody has made; nothing is ever compiled unasked."""
    return [
        f"for attention {it.attention.path}, compile {it.package} {it.version} once (it takes a while): "
        f"verl-env build {it.package} --row {row}"
        for it in offers
        if it.attention
    ]


def attention_data(attention: str | None, settings: tuple[str, ...], offers: Iterable[Build]) -> dict[str, Any]:
    """Return the same for `--json`."""
    builds = [{"package": it.package, "version": it.version} for it in offers]
    return {"attention": {"path": attention, "settings": list(settings), "builds": builds}}
