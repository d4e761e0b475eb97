"""`verl-env install`: detect, choose, lock, build, prove, switch; or a lockfile in place of the first three."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verl_env import output, paths
from verl_env.builds.use import wheelhouse_options, with_wheelhouse
from verl_env.commands.building import add_wait_argument, cache_options, device_of, is_cached
from verl_env.commands.built_wheels import (
    add_built_arguments,
    attention_data,
    offer_lines,
    with_built_wheels,
)
from verl_env.commands.carried import add_carried_arguments, base_obstacles, carried_by
from verl_env.commands.choosing import (
    Reach,
    choose_reachable,
    choose_row,
    read_situation,
)
from verl_env.commands.choosing_arguments import add_choosing_arguments
from verl_env.commands.proving import add_proof_arguments
from verl_env.environment.attention import attention_lines
from verl_env.environment.build import Plan, build_environment
from verl_env.environment.overlay import in_front
from verl_env.environment.preflight import check_lock_fits, check_place, check_room, find_python
from verl_env.environment.standing import current_folder, installed, settle, switch_to
from verl_env.environment.surroundings import look_around
from verl_env.lock.build import build_lock
from verl_env.lock.locate import locate
from verl_env.lock.lockfile import Lock, render_lock
from verl_env.lock.read import read_lock
from verl_env.matrix.load import load_pins
from verl_env.mirror_exports import asked_for
from verl_env.node.names import NO_DEVICE
from verl_env.node.system import read_glibc, read_machine
from verl_env.output import Result, human_bytes

if TYPE_CHECKING:
    import argparse

    from verl_env.commands.carried import Carried
    from verl_env.commands.choosing import Situation
    from verl_env.environment.overlay import Overlay
    from verl_env.environment.receipt import Receipt
    from verl_env.matrix.builds import Build


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the lockfile, what narrows the choice, and how to build."""
    parser.add_argument("lock", nargs="?", metavar="LOCK", help="install this lockfile (default: choose a row)")
    add_choosing_arguments(parser)
    group = parser.add_argument_group("building")
    group.add_argument("--dry-run", action="store_true", help="say what would be done, and do nothing")
    add_proof_arguments(group)
    group.add_argument("--no-space-check", action="store_true", help="try even where space seems short")
    group.add_argument("--no-switch", action="store_true", help="build and prove it; what is in use stays in use")
    group.add_argument("--keep-failed", action="store_true", help="keep the folder of a failed build to look into")
    add_wait_argument(group)
    add_carried_arguments(group)
    add_built_arguments(group, unasked="the default where the row is chosen, and no lock is given")


def run(args: argparse.Namespace) -> Result:
    """Install what was asked for; when it is there already, say so and stop."""
    with carried_by(args) as carried:
        return _install(args, carried)


def _install(args: argparse.Namespace, carried: Carried) -> Result:
    """Install from the indexes, or from what was carried here."""
    situation = _here(read_situation(args))
    reach = Reach(obstacles=base_obstacles(situation.matrix, carried.base))
    given = carried.lock or (read_lock(Path(args.lock)) if args.lock else None)
    lock = given or _lock_if_installed(situation, reach, args)
    if lock is None:
        fit, pins, _ = choose_reachable(situation, reach, for_install=not args.dry_run)
        for note in fit.notes:
            output.note(f"note: {note}")
        lock = build_lock(fit.entry, pins, situation.matrix.facts)
    extended = with_built_wheels(lock, situation, args, unasked=given is None)
    for note in extended.notes:
        output.note(f"note: {note}")
    lock, offers = extended.lock, extended.offers
    situation = replace(situation, indexes=with_wheelhouse(lock, situation.indexes))
    check_lock_fits(lock.table, situation.node)
    overlay = carried.overlay(lock)
    suffix = overlay.suffix if overlay else ""
    if there := installed(lock, suffix):
        return _there(*there, lock, offers, dry=args.dry_run, switch=not args.no_switch)
    folder = paths.environments() / f"{lock.name}{suffix}"
    wanted = in_front(lock, overlay)
    check_place(folder)
    if not args.no_space_check:
        options = cache_options(wanted, situation.indexes, situation.matrix.facts)
        check_room(wanted.table, folder, lambda: is_cached(wanted, options))
    if args.dry_run:
        text = "\n".join([_plan_text(lock, folder, switch=not args.no_switch), *_attention_text(lock, offers)])
        return Result(data=_planned(lock, folder) | _attention(lock, offers), text=text)
    output.note(f"{lock.table.title}: {len(wanted.pins)} packages, {human_bytes(wanted.table.download_bytes)}")
    receipt = build_environment(_plan(lock, folder, situation, args, (carried, overlay)))
    return _built(receipt, folder, lock, offers, switch=not args.no_switch)


def _here(situation: Situation) -> Situation:
    """Complete a described node with what this machine is: the packages are installed here."""
    node = situation.node
    if not node.described:
        return situation
    return replace(
        situation,
        node=replace(node, glibc=node.glibc or read_glibc(), machine=node.machine or read_machine()),
    )


def _lock_if_installed(situation: Situation, reach: Reach, args: argparse.Namespace) -> Lock | None:
    """Return the lock of the best fit when its environment stands already: nothing needs to be in reach then."""
    fit = choose_row(situation, reach).chosen
    if fit is None or fit.pins is None:
        return None
    lock = build_lock(fit.entry, load_pins(fit.entry, fit.pins), situation.matrix.facts)
    return lock if installed(with_built_wheels(lock, situation, args, unasked=True).lock) else None


def _plan(
    lock: Lock, folder: Path, situation: Situation, args: argparse.Namespace, brought: tuple[Carried, Overlay | None]
) -> Plan:
    """Find the Python and the files; nothing is written yet but what a bundle holds, beside the environments."""
    carried, overlay = brought
    interpreter = carried.interpreter() or find_python(lock.table.python)
    output.note(f"Python {interpreter.version} at {interpreter.path} ({interpreter.kind})")
    wanted = overlay.install if overlay else lock.pins
    located = carried.located(lock)
    if located:
        located = replace(located, options=(*located.options, *wheelhouse_options(lock, situation.indexes)))
    else:
        located = locate(wanted, lock.table.python, situation.indexes, situation.matrix.facts)
    places = {pin.file: lock.urls.get(pin.file) or pin.file for pin in lock.pins}
    node = situation.node
    return Plan(
        lock=lock,
        lock_text=render_lock(replace(lock, urls={**places, **located.urls})),
        folder=folder,
        interpreter=interpreter,
        index_options=located.options,
        parts=located.parts,
        around=replace(look_around(node, measured=not node.described), extra=asked_for(situation.indexes, lock)),
        device=device_of(node),
        level=args.level,
        job_seconds=args.time_limit,
        keep_failed=args.keep_failed,
        wait=args.wait,
        switch=not args.no_switch,
        overlay=overlay,
    )


def _there(folder: Path, receipt: Receipt, lock: Lock, offers: tuple[Build, ...], *, dry: bool, switch: bool) -> Result:
    """Say what is there; make it current if it was not."""
    moved = switch and not dry and switch_to(folder)
    if not dry:
        settle(folder)
    data = _receipt_data(receipt, folder) | {"changed": moved} | _attention(lock, offers)
    what = "is now current" if moved else "is already there, and current"
    if folder != current_folder():
        what = "is already there"
    lines = [f"{receipt.title} {what}: {folder}", *_attention_text(lock, offers), _next_steps(folder, switch=switch)]
    return Result(data=data, text="\n".join(lines))


def _attention(lock: Lock, offers: tuple[Build, ...]) -> dict[str, Any]:
    return attention_data(lock.table.attention, lock.table.settings, offers)


def _attention_text(lock: Lock, offers: tuple[Build, ...]) -> list[str]:
    """Say the path and its settings, and offer the builds that would give another one."""
    return [*attention_lines(lock.table.attention, lock.table.settings), *offer_lines(lock.table.row, offers)]


def _built(receipt: Receipt, folder: Path, lock: Lock, offers: tuple[Build, ...], *, switch: bool) -> Result:
    """Say what was built and proved, and what was not."""
    for note in receipt.notes:
        output.warn(note)
    shown = [f"{it.name}{' skipped' if it.skipped else ''}" for it in receipt.shown]
    lines = [
        f"{receipt.title} is ready: {folder}",
        f"Python {receipt.python}, {receipt.packages} packages; proved: {receipt.level}"
        + (f" ({', '.join(shown)})" if shown else "")
        + f"; device: {receipt.device}",
    ]
    if receipt.device == NO_DEVICE:
        lines.append("no kernel ran: there was no GPU to run one on")
    lines += [*_attention_text(lock, offers), _next_steps(folder, switch=switch)]
    data = _receipt_data(receipt, folder) | {"changed": True} | _attention(lock, offers)
    return Result(data=data, text="\n".join(lines))


def _receipt_data(receipt: Receipt, folder: Path) -> dict[str, Any]:
    from verl_env.records import to_plain

    return {"folder": str(folder), "current": str(paths.current()), "receipt": to_plain(receipt)}


def _next_steps(folder: Path, *, switch: bool) -> str:
    if not switch:
        return f"switch to it: verl-env use {folder.name}"
    return 'use it: eval "$(verl-env env)"   or: verl-env run -- python …'


def _planned(lock: Lock, folder: Path) -> dict[str, Any]:
    table = lock.table
    return {
        "folder": str(folder),
        "row": table.row,
        "title": table.title,
        "digest": table.digest,
        "python": table.python,
        "packages": len(lock.pins),
        "download_bytes": table.download_bytes,
        "installed_bytes": table.installed_bytes,
        "imports": list(table.imports),
        "changed": False,
    }


def _plan_text(lock: Lock, folder: Path, *, switch: bool) -> str:
    table = lock.table
    room = f", {human_bytes(table.installed_bytes)} on disk" if table.installed_bytes else ""
    lines = [
        f"would install {table.title} (row {table.row}) into {folder}",
        f"Python {table.python}, {len(lock.pins)} packages, {human_bytes(table.download_bytes)} to fetch{room}",
        f"then import {', '.join(table.imports)}",
        f"then point {paths.current()} at it" if switch else f"and leave {paths.current()} as it is",
    ]
    return "\n".join(lines)
