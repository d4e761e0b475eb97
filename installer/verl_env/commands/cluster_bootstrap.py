"""`verl-env cluster bootstrap [LOCK]`: the Ray of a lock on a node that has none, to start a cluster with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from verl_env import output, paths
from verl_env.cluster.ray_lock import ray_lock
from verl_env.commands.building import add_wait_argument
from verl_env.commands.choosing import Reach, choose_reachable, read_situation
from verl_env.commands.choosing_arguments import add_choosing_arguments
from verl_env.environment.build import Plan, build_environment
from verl_env.environment.preflight import check_place, find_python
from verl_env.environment.standing import installed
from verl_env.environment.surroundings import look_around
from verl_env.lock.build import build_lock
from verl_env.lock.locate import locate
from verl_env.lock.lockfile import render_lock
from verl_env.lock.read import read_lock
from verl_env.node.names import NO_DEVICE
from verl_env.output import Result, human_bytes

if TYPE_CHECKING:
    import argparse

    from verl_env.commands.choosing import Situation
    from verl_env.lock.lockfile import Lock


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the lock, or what chooses its row."""
    parser.add_argument("lock", nargs="?", metavar="LOCK", help="a lockfile (default: choose a row for this node)")
    add_choosing_arguments(parser)
    group = parser.add_argument_group("building")
    group.add_argument("--dry-run", action="store_true", help="say what would be done, and do nothing")
    add_wait_argument(group)


def run(args: argparse.Namespace) -> Result:
    """Build Ray alone, with the files and the Python that the lock pins; what is in use stays in use."""
    situation = read_situation(args)
    whole = _whole(args, situation)
    lock = ray_lock(whole, situation.indexes)
    there = installed(lock)
    folder = there[0] if there else paths.environments() / lock.name
    if not there and not args.dry_run:
        output.note(f"{lock.table.title}: {len(lock.pins)} packages, {human_bytes(lock.table.download_bytes)}")
        build_environment(_plan(lock, folder, situation, args))
    data = {
        "folder": str(folder),
        "python": whole.table.python,
        "ray": lock.table.set["ray"],
        "packages": len(lock.pins),
        "changed": not there and not args.dry_run,
    }
    return Result(data=data, text=_text(lock, folder, args.lock or f"--row {whole.table.row}", dry=args.dry_run))


def _whole(args: argparse.Namespace, situation: Situation) -> Lock:
    """Return the lock that the cluster is for."""
    if args.lock:
        return read_lock(Path(args.lock))
    fit, pins, _ = choose_reachable(situation, Reach(), for_install=False)
    return build_lock(fit.entry, pins, situation.matrix.facts)


def _plan(lock: Lock, folder: Path, situation: Situation, args: argparse.Namespace) -> Plan:
    """Find the Python and the files."""
    check_place(folder)
    interpreter = find_python(lock.table.python)
    output.note(f"Python {interpreter.version} at {interpreter.path} ({interpreter.kind})")
    located = locate(lock.pins, lock.table.python, situation.indexes, situation.matrix.facts)
    places = {pin.file: lock.urls.get(pin.file) or pin.file for pin in lock.pins}
    return Plan(
        lock=lock,
        lock_text=render_lock(replace(lock, urls={**places, **located.urls})),
        folder=folder,
        interpreter=interpreter,
        index_options=located.options,
        parts=located.parts,
        around=look_around(situation.node, measured=not situation.node.described),
        device=NO_DEVICE,
        wait=args.wait,
        switch=False,
    )


def _text(lock: Lock, folder: Path, again: str, *, dry: bool) -> str:
    """Say what is there, and the commands that go on from it."""
    ray = f"{folder}/bin/ray"
    lines = [
        f"{lock.table.title} {'would be built in' if dry else 'is ready:'} {folder}",
        "the same command on every node, then",
        f"  on one:         {ray} start --head --port 6379",
        f"  on the others:  {ray} start --address HEAD:6379",
        f"  and on one:     verl-env cluster install {again} --on ray:HEAD:6379 --ray-python {folder}",
    ]
    return "\n".join(lines)
