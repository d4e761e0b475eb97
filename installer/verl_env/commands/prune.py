"""`verl-env prune`: remove environments that nobody needs any more, and say what that frees."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from verl_env import output, paths
from verl_env.environment.bytecode import drop_unused
from verl_env.environment.holding import held, is_held
from verl_env.environment.in_use import find_users
from verl_env.environment.removal import (
    drop_bundles,
    left_behind,
    name_of,
    own_bytes,
    remove_environment,
    remove_tree,
    sweep,
)
from verl_env.environment.standing import current_folder, marker_of, standing, ways_back
from verl_env.errors import BusyError, InstallError, NoEnvironmentError, PreflightError, UsageError
from verl_env.node.folders import probe_folders
from verl_env.node.host import Host
from verl_env.output import Result, human_bytes

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from verl_env.environment.in_use import Users

_SHOWN = 3  # processes named for each environment that is in use


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """What happens to one folder: `why` it goes or stays; what its removal frees, and what other links keep."""

    folder: Path
    goes: bool
    why: str
    freed_bytes: int = 0
    shared_bytes: int = 0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add which, and how sure."""
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these (default: all but current and last good)")
    parser.add_argument("--dry-run", action="store_true", help="say what would go and what it would free")
    parser.add_argument(
        "--force", action="store_true", help="also on a shared file system, where other nodes' jobs hide"
    )


def run(args: argparse.Namespace) -> Result:
    """Remove what is neither current nor the last good, nor in use; only what verl-env made."""
    there = paths.environments()
    if not args.dry_run and not args.force:
        _refuse_if_shared(there)
    fates = tuple(_fates(there, tuple(args.names)))
    if not args.dry_run:
        fates = tuple(_removed(fate) if fate.goes else fate for fate in fates)
        sweep(paths.home(), there)
    freed, shared = (sum(it.freed_bytes for it in fates if it.goes), sum(it.shared_bytes for it in fates if it.goes))
    bytecode = 0 if args.dry_run else drop_unused()
    bundles = 0 if args.dry_run else drop_bundles(paths.home(), there)
    freed, shared = freed + bytecode + bundles, max(shared - bytecode, 0)
    data = {
        "environments": [
            {
                "name": it.folder.name,
                "removed": it.goes and not args.dry_run,
                "would_remove": it.goes,
                "why": it.why,
                "freed_bytes": it.freed_bytes,
                "shared_bytes": it.shared_bytes,
            }
            for it in fates
        ],
        "freed_bytes": freed,
        "shared_bytes": shared,
        "changed": not args.dry_run and any(it.goes for it in fates),
    }
    return Result(data=data, text=_text(fates, freed, shared, dry=args.dry_run))


def _refuse_if_shared(there: Path) -> None:
    """Ask for --force where a job on another node may use what looks idle from here."""
    (place,) = probe_folders(Host(), {"environments": there})
    if place.network:
        raise PreflightError(
            f"`{there}` is on a shared file system ({place.filesystem}): jobs on other nodes cannot be seen from here",
            hint="when no job uses them: verl-env prune --force",
        )


def _fates(there: Path, names: tuple[str, ...]) -> Iterator[Fate]:
    """Judge every environment of ours, and what interrupted work left."""
    every = standing()
    known = {it.folder.name: it for it in every}
    if unknown := [name for name in names if name not in known]:
        raise NoEnvironmentError(
            f"no environment is called {', '.join(f'`{it}`' for it in unknown)}",
            details=tuple(known),
            hint="name one in full: verl-env list",
        )
    if current := next((name for name in names if known[name].current), None):
        raise UsageError(f"`{current}` is in use: it is current", hint="install or roll back to another one first")
    back = next(iter(ways_back()), None)
    users = find_users(it.folder for it in every)
    if users.hidden:
        output.note(f"{users.hidden} processes of other users could not be looked at")
    for it in every:
        if names and it.folder.name not in names:
            continue
        stays = _reason_to_stay(it.folder, users, current=it.current)
        if not stays and back and it.folder == back.folder and not names:
            stays = "the last good one: rollback leads to it"
        why = "unfinished" if it.receipt is None else f"replaced by {it.replaced}" if it.replaced else "not in use"
        freed, shared = (0, 0) if stays else own_bytes(it.folder)
        yield Fate(folder=it.folder, goes=not stays, why=stays or why, freed_bytes=freed, shared_bytes=shared)
    for aside in () if names else left_behind(there):
        if not is_held(name_of(aside)):
            freed, shared = own_bytes(aside)
            yield Fate(
                folder=aside,
                goes=True,
                why="left by a removal that ended early",
                freed_bytes=freed,
                shared_bytes=shared,
            )


def _reason_to_stay(folder: Path, users: Users, *, current: bool) -> str:
    """Return why an environment stays whoever asks, or nothing."""
    if current:
        return "current"
    if is_held(folder):
        return "another verl-env is at work on it"
    if found := users.by_folder.get(folder):
        names = ", ".join(f"{it.name} {it.pid} ({it.how})" for it in found[:_SHOWN])
        return f"in use by {names}" + (f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else "")
    return ""


def _removed(fate: Fate) -> Fate:
    """Remove one, under its lock; what changed since it was judged is respected."""
    folder = name_of(fate.folder) if fate.folder.name.startswith(".") else fate.folder
    try:
        with held(folder, wait=0):
            if folder == current_folder():
                return Fate(folder=fate.folder, goes=False, why="it became current in the meantime")
            if fate.folder == folder or not folder.exists():
                remove_environment(folder)
            else:  # a newer build has the name: only what lost it goes
                remove_tree(fate.folder)
            with contextlib.suppress(FileNotFoundError):
                marker_of(folder).unlink()
    except BusyError:
        return Fate(folder=fate.folder, goes=False, why="another verl-env is at work on it")
    except OSError as err:
        raise InstallError(
            f"`{err.filename or fate.folder}` cannot be removed: {err.strerror}",
            hint="run it again as the user who made it",
        ) from err
    return fate


def _text(fates: tuple[Fate, ...], freed: int, shared: int, *, dry: bool) -> str:
    if not fates:
        return "no environment is here; nothing to remove"
    verb = "would remove" if dry else "removed"
    lines = [f"{verb if it.goes else 'kept':<12}  {it.folder.name.lstrip('.')}: {it.why}" for it in fates]
    if any(it.goes for it in fates):
        lines.append(f"{'would free' if dry else 'freed'} {human_bytes(freed)}")
        if shared:
            lines.append(f"{human_bytes(shared)} more stay in uv's cache (uv cache prune) or in other environments")
    return "\n".join(lines)
