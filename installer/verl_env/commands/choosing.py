"""What `lock`, `install` and `matrix explain` share: the arguments that describe and narrow, and the choice."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from verl_env import output, paths
from verl_env.environment.preflight import find_python, minor_of, usable
from verl_env.errors import NoDeviceError, NoRowError, PreflightError, UsageError
from verl_env.indexes import Indexes, read_indexes
from verl_env.lock.locate import Located, UnreachableError, locate
from verl_env.matrix.choose import Choice, Obstacles, Wishes, choose
from verl_env.matrix.fit import Fit, driver_floor
from verl_env.matrix.load import load_matrix, load_pins
from verl_env.matrix.status import LEAST_STATUS, LEVELS
from verl_env.node.arguments import node_from_arguments

if TYPE_CHECKING:
    import argparse

    from verl_env.matrix.matrix import Matrix
    from verl_env.matrix.pins import Pins
    from verl_env.node.facts import Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """Everything a choice is made from."""

    matrix: Matrix
    node: Node
    wishes: Wishes
    indexes: Indexes


@dataclass(slots=True, kw_only=True)
class Reach:
    """What was tried on this node while choosing, so that nothing is tried twice."""

    located: dict[str, Located] = field(default_factory=dict)
    obstacles: dict[str, str] = field(default_factory=dict)


def read_situation(args: argparse.Namespace) -> Situation:
    """Load the matrix, measure or describe the node, and read the wishes; raises UsageError for unknown names."""
    matrix = load_matrix(args.matrix)
    wishes = wishes_of(args, matrix)
    folders = {"environments": paths.environments(), "cache": paths.uv_cache()}
    node = node_from_arguments(args, names=matrix.gpu_names(), folders=folders)
    indexes = read_indexes(args.index)
    if args.mirror:
        from verl_env.mirrors import with_mirrors

        indexes = with_mirrors(indexes, args.mirror, matrix.facts, asked=bool(args.index))
    return Situation(matrix=matrix, node=node, wishes=wishes, indexes=indexes)


def wishes_of(args: argparse.Namespace, matrix: Matrix) -> Wishes:
    """Read what narrows the choice; raises UsageError for a row that is not there."""
    if args.row and args.row not in matrix.entries:
        close = difflib.get_close_matches(args.row, matrix.entries, n=3, cutoff=0.3)
        known = ", ".join(close or matrix.entries)
        raise UsageError(f"no row is called `{args.row}`", hint=f"known: {known}; see `verl-env matrix list`")
    return Wishes(
        row=args.row,
        verl=args.verl,
        engine=args.engine,
        python=_minor(args.python) if args.python else None,
        ray=args.ray,
        cpu=args.cpu,
        prefer_native=args.prefer_native,
        least=LEVELS[0] if args.allow_unproved else LEAST_STATUS,
    )


def _minor(asked: str) -> str:
    """Return the minor of the Python that was asked for; raises UsageError for what is no version."""
    from packaging.version import InvalidVersion

    try:
        return minor_of(asked)
    except InvalidVersion as err:
        raise UsageError(f"`{asked}` is no Python version", hint="write its minor, such as 3.12") from err


def choose_row(situation: Situation, reach: Reach) -> Choice:
    """Choose with what is known so far of this node's reach; no network."""
    node = situation.node
    pythons = None
    if node.interpreters:
        pythons = frozenset(minor_of(it.version or "0") for it in usable(node.interpreters))
    obstacles = Obstacles(variants=reach.obstacles, pythons=pythons)
    return choose(situation.matrix, node, situation.wishes, obstacles)


def choose_reachable(situation: Situation, reach: Reach, *, for_install: bool) -> tuple[Fit, Pins, Choice]:
    """Choose a row whose files (and Python) this node can get: what is out of reach falls, and the next is tried.

    Only sources other than `default` are tried beforehand; raises what `refusal` says when nothing is left.
    """
    while True:
        choice = choose_row(situation, reach)
        fit = choice.chosen
        if fit is None or fit.pins is None:
            raise refusal(situation, choice)
        pins = load_pins(fit.entry, fit.pins)
        obstacle = _obstacle(pins, situation, reach, for_install=for_install)
        if obstacle is None:
            return fit, pins, choice
        output.note(f"row {fit.entry.id} was passed over: {obstacle}")
        reach.obstacles[pins.header.file_name] = obstacle


def _obstacle(pins: Pins, situation: Situation, reach: Reach, *, for_install: bool) -> str | None:
    """Try what could be out of reach, and return why it is."""
    special = tuple(pin for pin in pins.pins if pin.source != "default")
    try:
        if special and pins.header.file_name not in reach.located:
            reach.located[pins.header.file_name] = locate(
                special, pins.header.python, situation.indexes, situation.matrix.facts
            )
        if for_install:
            find_python(pins.header.python)
    except UnreachableError as err:
        return "; ".join((err.message, *err.details))
    except PreflightError as err:
        return err.message
    return None


def refusal(situation: Situation, choice: Choice) -> NoRowError | NoDeviceError:
    """Return the error for a node that nothing fits: each row tried with why it fell, and what would do."""
    node = situation.node
    tried = tuple(f"{fit.entry.id}: {'; '.join(fit.reasons)}" for fit in choice.fits)
    if not node.described and not choice.for_cpu and node.driver is None:
        return _no_device(node, tried)
    return NoRowError("no row fits this node", details=tried, hint=_what_would_do(situation, choice))


def _what_would_do(situation: Situation, choice: Choice) -> str:
    """Say what the nearest row would need."""
    nearest = choice.nearest
    if nearest is None:
        return "the matrix has no rows; name one with --matrix"
    floors = [driver_floor(fit.entry.row.cuda, situation.matrix.facts) for fit in choice.fits if fit.driver_needed]
    from packaging.version import Version

    lowest = min((floor for floor in floors if floor), key=Version, default=None)
    if lowest and nearest.driver_needed:
        return f"a driver >= {lowest} would do (row {nearest.entry.id}); ask for --cpu for work without a GPU"
    return f"nearest is {nearest.entry.id}: {nearest.reasons[0]}"


def _no_device(node: Node, tried: tuple[str, ...]) -> NoDeviceError:
    """Say why a machine without a driver is not taken for a CPU node."""
    hint = "for CPU work: --cpu; to build for GPU nodes here: --driver VERSION --gpu NAME"
    if node.other_accelerators:
        what = ", ".join(f"{it.name} ({it.source})" for it in node.other_accelerators)
        return NoDeviceError(f"the accelerator here is not NVIDIA's: {what}", hint=hint, details=tried)
    if node.scheduler:
        return NoDeviceError(
            f"no GPU is here, but a scheduler is ({node.scheduler.name}: {node.scheduler.source}): a login node?",
            hint=f"{hint}; or run this on a compute node (srun)",
            details=tried,
        )
    seen = node.nvidia_device.source if node.nvidia_device else "a CUDA library"
    findings = tuple(f"{it.what}: {it.action}" for it in node.findings)
    return NoDeviceError(
        f"NVIDIA hardware is in sight ({seen}), and no driver answers", hint=hint, details=(*findings, *tried)
    )


def explained(situation: Situation, choice: Choice) -> dict[str, Any]:
    """Return the choice as the `data` of `matrix explain`."""
    facts = situation.matrix.facts
    return {
        "chosen": _chosen(choice.chosen, facts) if choice.chosen else None,
        "nearest": choice.nearest.entry.id if choice.nearest else None,
        "rows": [
            {
                "id": fit.entry.id,
                "verdict": fit.verdict,
                "reasons": list(fit.reasons),
                "notes": list(fit.notes),
                "status": fit.entry.status(fit.pins),
            }
            for fit in choice.fits
        ],
    }


def _chosen(fit: Fit, facts: Any) -> dict[str, Any]:
    """Return the chosen row as scripts read it."""
    row, pins = fit.entry.row, fit.pins
    return {
        "id": fit.entry.id,
        "title": row.title,
        "verl": row.set["verl"],
        "engine": row.engine,
        "engine_version": row.set[row.engine] if row.engine else None,
        "cuda": row.cuda,
        "support": fit.verdict,
        "driver_min": driver_floor(row.cuda, facts),
        "glibc_min": pins.glibc if pins else None,
        "arch": pins.arch if pins else row.arch[0],
        "python": pins.python if pins else row.python[0],
        "status": fit.entry.status(pins),
        "set": row.set,
        "notes": list(fit.notes),
    }
