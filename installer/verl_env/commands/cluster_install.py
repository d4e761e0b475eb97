"""`verl-env cluster install [LOCK]`: one environment on every node, and then every node switches to it."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from verl_env import output, paths
from verl_env.bundle.read import Bundle
from verl_env.bundle.tool import own_wheel
from verl_env.cluster.agree import agree
from verl_env.cluster.course import SWITCHED
from verl_env.commands.building import add_wait_argument
from verl_env.commands.bundling import Order, bundle_lock
from verl_env.commands.choosing_arguments import add_wishes
from verl_env.commands.cluster_nodes import add_cluster_arguments, cluster_of
from verl_env.commands.cluster_progress import progress_shown
from verl_env.commands.cluster_rollout import How, Rollout
from verl_env.commands.cluster_text import some
from verl_env.commands.proving import add_proof_arguments
from verl_env.environment.holding import held
from verl_env.errors import InstallError, LockError, NoRowError, PreflightError, UsageError
from verl_env.indexes import read_indexes
from verl_env.lock.build import build_lock
from verl_env.lock.read import read_lock
from verl_env.matrix.load import load_pins, pins_path
from verl_env.output import Result, human_bytes

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from verl_env.cluster.agree import Agreement
    from verl_env.cluster.facts import Seen
    from verl_env.lock.lockfile import Lock
    from verl_env.matrix.matrix import Matrix

    _Locked: TypeAlias = tuple[Lock, tuple[Path, ...]]  # a lock, and the files of the matrix that it comes from

NODE_SECONDS = 3600.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the lock, the engine, what narrows the rows, and how to build."""
    parser.add_argument("lock", nargs="?", metavar="LOCK", help="a lockfile (default: the row that fits all nodes)")
    add_cluster_arguments(parser)
    choosing = parser.add_argument_group("choosing")
    add_wishes(choosing)
    choosing.add_argument("--index", metavar="URL", help="package index in place of the one uv and pip are set up with")
    group = parser.add_argument_group("building")
    group.add_argument("--dry-run", action="store_true", help="look at every node, say what would be done, and stop")
    group.add_argument(
        "--at-least",
        type=int,
        metavar="N",
        help="switch when so many nodes have proved it (default: all of them)",
    )
    group.add_argument(
        "--node-limit",
        type=float,
        default=NODE_SECONDS,
        metavar="SECONDS",
        help=f"give a node up that takes longer to build ({NODE_SECONDS:.0f})",
    )
    add_proof_arguments(group)
    group.add_argument("--with-python", action="store_true", help="carry a Python too, the same to every node")
    group.add_argument("--no-space-check", action="store_true", help="try even where space seems short")
    add_wait_argument(group)


def run(args: argparse.Namespace) -> Result:
    """Bring the lock to every node; `current` moves on none of them before enough have proved it."""
    from verl_env.commands.choosing import wishes_of
    from verl_env.matrix.load import load_matrix

    if args.lock and args.row:
        raise UsageError("both a lockfile and --row", hint="leave one of them out")
    matrix = load_matrix(args.matrix)
    wishes = wishes_of(args, matrix)
    given: _Locked | None = (read_lock(Path(args.lock)), ()) if args.lock else None
    with cluster_of(args) as nodes, progress_shown() as progress:
        least = _least(args.at_least, len(nodes.members))
        seen = nodes.look()
        lock, sources = given or _chosen(agree(seen, matrix, wishes), matrix, seen, least)
        rollout = Rollout(nodes=nodes, lock=lock, how=_how(args), progress=progress)
        rollout.begin(seen)
        rollout.preflight()
        if args.dry_run or len(rollout.well()) < least:
            return _report(rollout, least, dry=args.dry_run)
        if rollout.well(there=False):
            bundle = _bundle(lock, sources, matrix, args)
            rollout.carry(bundle, bundle.stat().st_size)
            rollout.build(bundle)
        if len(rollout.well()) >= least:
            rollout.switch()
        return _report(rollout, least, dry=False)


def _least(asked: int | None, members: int) -> int:
    """Return how many nodes have to prove it; raises UsageError for a number that cannot be."""
    if asked is not None and not 1 <= asked <= members:
        raise UsageError(f"--at-least {asked}: there are {members} nodes", hint=f"a number from 1 to {members}")
    return asked or members


def _how(args: argparse.Namespace) -> How:
    words = ["--json", "--no-switch", "--level", args.level, "--time-limit", str(args.time_limit)]
    words += ["--wait", str(args.wait), *(["--no-space-check"] if args.no_space_check else [])]
    return How(
        words=tuple(words),
        seconds=args.node_limit,
        with_python=args.with_python,
        space_check=not args.no_space_check,
    )


def _chosen(agreed: Agreement, matrix: Matrix, seen: Sequence[Seen], least: int) -> _Locked:
    """Lock the row that fits enough nodes; raises NoRowError with each node's reasons."""
    fit = agreed.fit
    if fit is None or fit.pins is None or len(agreed.nodes) < least:
        unanswered = [f"{it.name}: {it.error}" for it in seen if it.error]
        what = f"{fit.entry.id} fits {len(agreed.nodes)} of {len(seen)} nodes" if fit else "none fits any node"
        raise NoRowError(
            f"no row fits {least} nodes: {what}",
            details=(*unanswered, *(f"{name}: {'; '.join(reasons)}" for name, reasons in agreed.left_out)),
            hint="see `verl-env cluster check`; leave nodes out of the cluster, or say --at-least N",
        )
    output.note(f"row {fit.entry.id} for {some(agreed.nodes)}")
    lock = build_lock(fit.entry, load_pins(fit.entry, fit.pins), matrix.facts)
    return lock, (fit.entry.path, pins_path(fit.entry, fit.pins))


def _bundle(lock: Lock, sources: tuple[Path, ...], matrix: Matrix, args: argparse.Namespace) -> Path:
    """Fetch every file once, into a bundle on this machine that stays for nodes which join later.

    It lies where every node's will, so that this machine, when it is a node too, has it already.
    """
    folder = paths.home() / "cluster"
    target = folder / f"{lock.name}.tar"
    folder.mkdir(parents=True, exist_ok=True)
    with held(folder, wait=args.wait):
        for older in folder.glob("*.tar"):
            if older != target:
                older.unlink()
        target.with_name(f"{target.name}.kept").touch()
        if not _holds(target, lock):
            order = Order(
                target=target,
                lock=lock,
                indexes=read_indexes(args.index),
                facts=matrix.facts,
                matrix=sources,
                with_python=args.with_python,
            )
            bundle_lock(order)
    output.note(f"bundle: {target} ({human_bytes(target.stat().st_size)}), kept for nodes that join later")
    return target


def _holds(path: Path, lock: Lock) -> bool:
    """Whether a bundle from an earlier run is of this lock, and has this very verl-env."""
    with contextlib.suppress(LockError, OSError):
        bundle = Bundle(path)
        try:
            names = {it.path.rpartition("/")[2] for it in bundle.manifest.members}
            return bundle.manifest.digest == lock.table.digest and own_wheel()[0] in names
        finally:
            bundle.close()
    return False


def _report(rollout: Rollout, least: int, *, dry: bool) -> Result:
    """Say how far each node came; exit code 0 when enough nodes switched, else 6, or 11 before anything began."""
    well = rollout.well()
    switched = [it for it in well if it.stage == SWITCHED]
    failed = [it for it in rollout.courses if it.why]
    enough = len(well) >= least
    begun = any(it.carried_bytes for it in rollout.courses) or bool(switched)
    code = 0 if enough else InstallError.exit_code if begun else PreflightError.exit_code
    table = rollout.lock.table
    data = {
        "engine": rollout.nodes.engine.name,
        "row": table.row,
        "title": table.title,
        "digest": table.digest,
        "at_least": least,
        "switched": bool(switched),
        "nodes": [it.plain() for it in rollout.courses],
    }
    lines = [f"{it.name}: {it.stage} failed: {it.why}" for it in failed]
    if dry:
        new = len(rollout.well(there=False))
        lines.append(f"would install {table.title} on {new} nodes ({len(well) - new} have it), and switch {len(well)}")
    elif switched:
        lines.append(f"{table.title} is current on {len(switched)} of {len(rollout.courses)} nodes")
    else:
        lines.append(f"nothing was switched: {len(well)} of {len(rollout.courses)} nodes are well, {least} are needed")
    if failed and not dry:
        lines.append("run it again for what is missing; what is there is kept")
    return Result(data=data, text="\n".join(lines), exit_code=code)
