"""What differs between the nodes of a cluster, and which row fits them all. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from verl_env.cluster.facts import NONE, Seen, gpus_of
from verl_env.environment.preflight import minor_of, usable
from verl_env.matrix.choose import Choice, Obstacles, choose

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from verl_env.matrix.choose import Wishes
    from verl_env.matrix.fit import Fit
    from verl_env.matrix.matrix import Matrix


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One thing that is not the same on all nodes: each value with the nodes that have it, the commonest first."""

    what: str
    values: tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """The row for all nodes but those of `left_out`, which have the reasons why it does not fit them."""

    fit: Fit | None
    nodes: tuple[str, ...] = ()
    left_out: tuple[tuple[str, tuple[str, ...]], ...] = ()


_LOOKED_AT: tuple[tuple[str, Callable[[Seen], str | None]], ...] = (
    ("driver", lambda it: it.node.driver.version if it.node and it.node.driver else NONE),
    ("GPUs", lambda it: gpus_of(it.node) if it.node else None),
    ("glibc", lambda it: it.node.glibc.value if it.node and it.node.glibc else NONE),
    ("architecture", lambda it: it.node.machine.value if it.node and it.node.machine else NONE),
    ("Python of the engine", lambda it: it.python),
    ("environment", lambda it: it.current.lock_digest if it.current else NONE),
    ("proof", lambda it: it.current.level if it.current else NONE),
)


def differences(seen: Sequence[Seen]) -> tuple[Difference, ...]:
    """Return what the nodes that answered do not have in common."""
    found = []
    answered = [it for it in seen if not it.error]
    for what, value_of in _LOOKED_AT:
        values: dict[str, list[str]] = {}
        for one in answered:
            values.setdefault(value_of(one) or NONE, []).append(one.name)
        if len(values) > 1:
            ordered = sorted(values.items(), key=lambda pair: (-len(pair[1]), pair[0]))
            found.append(Difference(what=what, values=tuple((value, tuple(names)) for value, names in ordered)))
    return tuple(found)


def agree(seen: Sequence[Seen], matrix: Matrix, wishes: Wishes) -> Agreement:
    """Choose the best row that fits every node that answered; where none does, the one that fits the most nodes."""
    answered = [it for it in seen if it.node]
    if not answered:
        return Agreement(fit=None)
    obstacles = Obstacles(pythons=common_pythons(answered))
    choices = {it.name: choose(matrix, it.node, wishes, obstacles) for it in answered if it.node}
    first = next(iter(choices.values()))
    fitting = {fit.entry.id: _nodes_of(fit.entry.id, choices) for fit in first.fits}
    most = max(len(names) for names in fitting.values())
    if most == 0:
        return Agreement(fit=None, left_out=tuple((name, _why(choice)) for name, choice in choices.items()))
    ranked = [fit for choice in choices.values() for fit in choice.fits if fit.fits]
    best = next(fit for fit in ranked if len(fitting[fit.entry.id]) == most)
    nodes = fitting[best.entry.id]
    left_out = tuple(
        (name, next(fit.reasons for fit in choice.fits if fit.entry.id == best.entry.id))
        for name, choice in choices.items()
        if name not in nodes
    )
    return Agreement(fit=best, nodes=nodes, left_out=left_out)


def _nodes_of(row: str, choices: dict[str, Choice]) -> tuple[str, ...]:
    """Return the nodes that a row fits with the same pins: those of the node where most agree."""
    by_pins: dict[str, list[str]] = {}
    for name, choice in choices.items():
        fit = next(it for it in choice.fits if it.entry.id == row)
        if fit.fits and fit.pins:
            by_pins.setdefault(fit.pins.file_name, []).append(name)
    longest: list[str] = max(by_pins.values(), key=len, default=[])
    return tuple(longest)


def _why(choice: Choice) -> tuple[str, ...]:
    nearest = choice.nearest
    return (f"nearest is {nearest.entry.id}", *nearest.reasons) if nearest else ("no row is known",)


def common_pythons(seen: Sequence[Seen]) -> frozenset[str] | None:
    """Return the minors that every node has a Python of; None where some node did not say."""
    found = [frozenset(minor_of(it.version or "0") for it in usable(one.node.interpreters)) for one in seen if one.node]
    return frozenset.intersection(*found) if found and all(found) else None
