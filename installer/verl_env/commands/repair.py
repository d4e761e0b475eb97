"""`verl-env repair [NAME]`: a damaged environment built again from the lock beside it, in a fresh folder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from verl_env import output, paths, uv
from verl_env.builds.use import with_wheelhouse
from verl_env.commands.building import add_wait_argument, cache_options, device_of, is_cached
from verl_env.commands.verify import look_into
from verl_env.environment.build import Plan, build_environment
from verl_env.environment.overlay import in_front, same_base
from verl_env.environment.preflight import check_place, check_room, find_python
from verl_env.environment.receipt import find_environment
from verl_env.environment.standing import current_folder, next_generation, switch_to
from verl_env.environment.surroundings import look_around
from verl_env.environment.verify import EXTRA
from verl_env.errors import InstallError, LockError
from verl_env.indexes import read_indexes
from verl_env.lock.locate import locate
from verl_env.lock.read import read_lock, read_text
from verl_env.matrix.load import load_matrix
from verl_env.node.probe import probe_node
from verl_env.output import Result
from verl_env.proof.levels import LEVELS
from verl_env.records import to_plain

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from verl_env.environment.receipt import Receipt
    from verl_env.environment.verify import Fault
    from verl_env.lock.lockfile import Lock


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add which environment, and how to build."""
    parser.add_argument("environment", nargs="?", metavar="NAME", help="an environment (default: the current one)")
    parser.add_argument("--dry-run", action="store_true", help="say what is damaged and what would be done")
    parser.add_argument("--index", metavar="URL", help="package index in place of the one uv and pip are set up with")
    parser.add_argument("--no-space-check", action="store_true", help="try even where space seems short")
    parser.add_argument("--level", choices=LEVELS, help="how far to prove it (default: as far as it was)")
    parser.add_argument("--time-limit", type=float, default=600.0, metavar="SECONDS", help="limit of each proof (600)")
    add_wait_argument(parser)


def run(args: argparse.Namespace) -> Result:
    """Compare every hash; rebuild when something differs, and switch if the damaged one was current."""
    folder, receipt = find_environment(args.environment)
    faults = look_into(folder, receipt, deep=True)[1] if receipt.manifest else ()
    fresh = next_generation(folder)
    data: dict[str, Any] = {"environment": folder.name, "fresh": fresh.name, "faults": [to_plain(it) for it in faults]}
    if not faults and receipt.manifest:
        text = f"{folder.name} is as it was made: {receipt.files} files; nothing to repair"
        return Result(data=data | {"fresh": None, "changed": False}, text=text)
    bad = _bad_in_cache(faults)
    if args.dry_run:
        what = f"would rebuild {folder.name} as {fresh.name}: {len(faults)} files are not as they were made"
        refetch = f"\nwould fetch anew, because uv's cache is bad too: {', '.join(bad)}" if bad else ""
        return Result(data=data | {"changed": False}, text=what + refetch)
    lock = _lock_beside(folder, receipt)
    _forget(bad)
    made = _rebuild(_plan(lock, folder, fresh, args, receipt))
    was_current = current_folder() == folder
    if was_current:
        switch_to(fresh)
    data |= {"changed": True, "switched": was_current, "receipt": to_plain(made)}
    lines = [
        f"{folder.name} was rebuilt as {fresh.name}" + (", which is now current" if was_current else ""),
        f"proved: {made.level}; {made.files} files, each compared with its sha256",
        "what runs in the damaged one keeps running; remove it with: verl-env prune",
    ]
    return Result(data=data, text="\n".join(lines))


def _lock_beside(folder: Path, receipt: Receipt) -> Lock:
    """Read the lock that the environment was made from; raises LockError when it is not that one any more."""
    path = folder / f"pylock.{receipt.row}.toml"
    lock = read_lock(path)
    if lock.table.digest != receipt.lock_digest:
        raise LockError(
            f"`{path}` is not the lock that {folder.name} was made from",
            hint=f"build it from the matrix: verl-env install --row {receipt.row}",
        )
    return lock


def _bad_in_cache(faults: tuple[Fault, ...]) -> tuple[str, ...]:
    """Return the packages with a file that is bad in uv's cache as well."""
    return tuple(sorted({it.package.split(" ")[0] for it in faults if it.cached and it.package}))


def _forget(names: tuple[str, ...]) -> None:
    """Have uv forget what its cache has of these packages."""
    if not names:
        return
    output.note(f"uv's cache is bad too: fetching {', '.join(names)} anew")
    done = uv.forget_cached(names)
    if done.returncode != 0:
        raise InstallError(
            "uv could not clean its cache", details=done.tail(), hint=f"run: uv cache clean {' '.join(names)}"
        )


def _rebuild(plan: Plan) -> Receipt:
    """Build, and compare every hash of what was built: a cache may be bad in files that were copied, not linked."""
    made = build_environment(plan)
    faults = [it for it in look_into(plan.folder, made, deep=True)[1] if it.kind != EXTRA]
    if not faults:
        return made
    names = tuple(sorted({it.package.split(" ")[0] for it in faults if it.package}))
    _forget(names)
    raise InstallError(
        f"{plan.folder.name} is damaged as soon as it is built: {', '.join(names)}",
        details=tuple(f"{it.path}: {it.what}" for it in faults[:5]),
        hint="uv's cache has forgotten them; run it again. If it stays so, the disk or its memory is failing",
    )


def _plan(lock: Lock, folder: Path, fresh: Path, args: argparse.Namespace, receipt: Receipt) -> Plan:
    """Plan the build: from the cache alone when it has everything, so that no index need be in reach."""
    overlay = same_base(lock, receipt.base) if receipt.base else None
    wanted = in_front(lock, overlay)
    matrix, indexes = load_matrix(args.matrix), with_wheelhouse(lock, read_indexes(args.index))
    check_place(fresh)
    options = cache_options(wanted, indexes, matrix.facts)
    cached = is_cached(wanted, options)
    if not args.no_space_check:
        check_room(wanted.table, fresh, lambda: cached)
    if not cached:
        options = locate(wanted.pins, lock.table.python, indexes, matrix.facts).options
    node = probe_node(folders={"environments": paths.environments()})
    return Plan(
        lock=lock,
        lock_text=read_text(folder / lock.file_name),
        folder=fresh,
        interpreter=overlay.read.interpreter if overlay else find_python(lock.table.python),
        index_options=options,
        around=look_around(node, measured=True),
        device=device_of(node),
        level=args.level or receipt.level,
        job_seconds=args.time_limit,
        wait=args.wait,
        switch=False,
        overlay=overlay,
    )
