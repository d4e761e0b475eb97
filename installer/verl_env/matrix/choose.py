"""Choosing: among the rows that fit a node and are proved, the newest verl, then the newest engine. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from packaging.version import Version

from verl_env.matrix.fit import NATIVE, REJECTED, Fit, fit_row
from verl_env.matrix.status import LEAST_STATUS, proved

if TYPE_CHECKING:
    from collections.abc import Mapping

    from verl_env.matrix.matrix import Entry, Matrix
    from verl_env.matrix.pins import PinsHeader
    from verl_env.node.facts import Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What the user narrows the choice by. `least` is the lowest status that may be chosen."""

    row: str | None = None
    verl: str | None = None
    engine: str | None = None
    python: str | None = None
    ray: str | None = None
    cpu: bool = False
    prefer_native: bool = False
    least: str = LEAST_STATUS


@dataclass(frozen=True, slots=True, kw_only=True)
class Obstacles:
    """What this node cannot reach, found by trying: (row, file name of pins) to the reason.

    `pythons` are the minors found here, best first for nobody: a row's own order decides among them; None when
    the node is described.
    """

    variants: Mapping[str, str] = field(default_factory=dict)
    pythons: frozenset[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The row that was chosen, or None; every row's fit, best first; and the nearest when nothing fits."""

    chosen: Fit | None
    fits: tuple[Fit, ...]
    for_cpu: bool

    @property
    def nearest(self) -> Fit | None:
        """The rejected row of the node's kind with the fewest reasons, then the lowest driver to reach."""
        if self.chosen or not self.fits:
            return None
        mendable = [fit for fit in self.fits if not fit.entry.row.broken]
        of_its_kind = [fit for fit in mendable if (fit.entry.row.cuda is None) == self.for_cpu]
        return min(of_its_kind or mendable or self.fits, key=_distance)


def works_on_cpu(node: Node, *, asked: bool) -> bool:
    """Whether this node's work is CPU work: asked for, or nothing of NVIDIA's and no GPU scheduler is in sight.

    A login node has no GPU and a scheduler; a broken driver is not a CPU node; a described driver means a GPU.
    """
    in_sight = (node.driver, node.libcuda, node.nvidia_device, node.scheduler)
    return asked or not (any(in_sight) or node.gpus or node.other_accelerators or node.described)


def choose(matrix: Matrix, node: Node, wishes: Wishes, obstacles: Obstacles) -> Choice:
    """Hold every row against the node and choose; deterministic, whatever the order of files."""
    for_cpu = works_on_cpu(node, asked=wishes.cpu)
    fits = [_fit_entry(it, matrix, node, wishes, obstacles, for_cpu=for_cpu) for it in matrix.entries.values()]
    fits.sort(key=lambda fit: fit.entry.id)
    fits.sort(key=lambda fit: _rank(fit, wishes), reverse=True)
    chosen = next((fit for fit in fits if fit.fits), None)
    return Choice(chosen=chosen, fits=tuple(fits), for_cpu=for_cpu)


def _fit_entry(entry: Entry, matrix: Matrix, node: Node, wishes: Wishes, obstacles: Obstacles, *, for_cpu: bool) -> Fit:
    """Return the best variant's fit: one that fits before one that does not, then the row's order of Pythons."""
    machine = node.machine.value if node.machine else None
    variants: tuple[PinsHeader | None, ...] = entry.variants(machine) or (None,)
    fits = [
        _narrow(fit_row(entry, pins, node, matrix.facts, for_cpu=for_cpu), node, wishes, obstacles) for pins in variants
    ]
    here = obstacles.pythons
    return min(fits, key=lambda fit: (not fit.fits, here is not None and _python(fit) not in here))


def _python(fit: Fit) -> str | None:
    return fit.pins.python if fit.pins else None


def _narrow(fit: Fit, node: Node, wishes: Wishes, obstacles: Obstacles) -> Fit:
    """Add the reasons that come from what was asked for, what is proved, and what can be reached."""
    row, pins = fit.entry.row, fit.pins
    wanted = [
        ("row", wishes.row, fit.entry.id),
        ("verl", wishes.verl, row.set.get("verl")),
        ("ray", wishes.ray, row.set.get("ray")),
        ("engine", wishes.engine, row.engine or "none"),
    ]
    reasons = [f"{name} `{wish}` was asked for; this is {has}" for name, wish, has in wanted if wish and wish != has]
    pythons = (pins.python,) if pins else row.python
    if wishes.python and wishes.python not in pythons:
        reasons.append(f"Python `{wishes.python}` was asked for; this is for {', '.join(pythons)}")
    status = fit.entry.status(pins)
    if pins is None:
        reasons += _without_pins(fit, node)
    elif not proved(status, wishes.least) and not row.broken:
        reasons.append(f"only {status}, and at least {wishes.least} is chosen unasked (--allow-unproved)")
    if pins and (obstacle := obstacles.variants.get(pins.file_name)):
        reasons.append(obstacle)
    if not reasons:
        return fit
    return replace(fit, verdict=REJECTED, reasons=(*fit.reasons, *reasons))


def _without_pins(fit: Fit, node: Node) -> list[str]:
    """Say why there is nothing to install; not where the row cannot be mended or is for other machines anyway."""
    row = fit.entry.row
    if row.broken or (node.machine and node.machine.value not in row.arch):
        return []
    sources = sorted(set(row.resolve.sources.values())) if row.resolve else []
    reached = f" where {', '.join(sources)} can be reached" if sources else ""
    return [f"only {fit.entry.status(None)}: no pins were made yet (verl-env matrix resolve {fit.entry.id}{reached})"]


def _rank(fit: Fit, wishes: Wishes) -> tuple[bool, bool, Version, Version, Version, bool]:
    """Order by: fits, native when preferred, newest verl, newest engine, newest CUDA, a set's own torch."""
    row = fit.entry.row
    engine = row.set[row.engine] if row.engine else "0"
    return (
        fit.fits,
        wishes.prefer_native and fit.verdict == NATIVE,
        Version(row.set["verl"]),
        Version(engine),
        Version(row.cuda or "0"),
        Version(row.set["torch"]).local is not None,
    )


def _distance(fit: Fit) -> tuple[int, Version]:
    """How far a rejected row is: number of reasons, then the driver it asks for."""
    return len(fit.reasons), Version(fit.driver_needed or "99999")
