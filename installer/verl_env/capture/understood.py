"""What a list means, in words: its nearest row, how that fits its node, and which row would run there. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from verl_env.capture.nearest import Near, fit_of, nearest_rows, node_of
from verl_env.matrix.choose import Obstacles, Wishes, choose
from verl_env.matrix.support import driver_floor

if TYPE_CHECKING:
    from verl_env.capture.listing import Listing
    from verl_env.matrix.fit import Fit
    from verl_env.matrix.matrix import Matrix


@dataclass(frozen=True, slots=True, kw_only=True)
class Understood:
    """`nearest` is the row whose set is nearest; `fit` how it fits the list's node; `runs` the row chosen for it."""

    nearest: Near | None
    fit: Fit | None
    runs: Fit | None


def understand(listing: Listing, matrix: Matrix) -> Understood:
    """Find the nearest row; where the list knows its node, say how it fits, and what would run there."""
    rows = nearest_rows(listing, matrix)
    near = rows[0] if rows else None
    node = node_of(listing, matrix.facts)
    if node is None:
        return Understood(nearest=near, fit=None, runs=None)
    choice = choose(matrix, node, Wishes(least="declared"), Obstacles())
    if near is None and choice.chosen:
        near = Near(entry=choice.chosen.entry, distance=0.0, apart=())
    fit = fit_of(near.entry, node, matrix.facts) if near else None
    nearest_that_runs = (fit_of(it.entry, node, matrix.facts) for it in rows)
    runs = next((it for it in nearest_that_runs if it.fits and not it.entry.row.broken), choice.chosen)
    return Understood(nearest=near, fit=fit, runs=runs)


def summary(listing: Listing) -> str:
    """Return one line: what it is, and the versions that tell it from others."""
    said = [f"{listing.kind}: {len(listing.packages)} packages"]
    said += [f"Python {listing.python}"] if listing.python else []
    versions = listing.versions
    said += [f"{name} {versions[name]}" for name in ("verl", "torch", "vllm", "sglang") if name in versions]
    said += [f"CUDA {listing.cuda}"] if listing.cuda else []
    said += [f"driver {listing.driver}"] if listing.driver else []
    if listing.gpus:
        count = len(listing.gpus)
        said.append((f"{count} x " if count > 1 else "") + " and ".join(dict.fromkeys(listing.gpus)))
    return ", ".join(said)


def fit_line(fit: Fit) -> str:
    """Say how a row fits in words: the verdict and its first reason or note."""
    said = "; ".join((*fit.reasons, *fit.notes)[:2])
    return f"{fit.entry.id}: {fit.verdict}" + (f" ({said})" if said else "")


def describe_listing(listing: Listing, matrix: Matrix) -> dict[str, Any]:
    """Return the list as data: what scripts read of each side of `diff`, and of `capture`."""
    return {
        "kind": listing.kind,
        "row": listing.row,
        "python": listing.python,
        "cuda": listing.cuda,
        "driver": listing.driver,
        "driver_min": driver_floor(listing.cuda, matrix.facts) if listing.cuda else None,
        "glibc": listing.glibc,
        "machine": listing.machine,
        "gpus": list(listing.gpus),
        "packages": len(listing.packages),
        "versions": listing.versions,
        "complete": listing.complete,
        "notes": list(listing.notes),
        "unread": list(listing.unread),
    }
