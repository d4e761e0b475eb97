"""The environments that stand on this node: which are complete, current, replaced or unfinished, and the way back."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from verl_env import paths
from verl_env.environment.holding import held, is_held
from verl_env.environment.receipt import Receipt, read_receipt
from verl_env.errors import InstallError
from verl_env.files import link_atomically, write_atomically

if TYPE_CHECKING:
    from verl_env.lock.lockfile import Lock

_KEPT = 50  # steps back that are remembered
_FIRST = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """One folder of ours. `receipt` is None while it is unfinished; `replaced` names the repair that stands for it."""

    folder: Path
    receipt: Receipt | None
    current: bool
    replaced: str | None = None


def marker_of(folder: Path) -> Path:
    """Return the file that says: the folder beside it is being built by verl-env, and is not finished."""
    return folder.with_name(f".{folder.name}.building")


def standing() -> tuple[Standing, ...]:
    """Return every environment of ours, complete ones by age (oldest first), then unfinished ones."""
    there, now = paths.environments(), current_folder()
    found = sorted(it for it in there.glob("*") if it.is_dir() and not it.is_symlink()) if there.is_dir() else []
    receipts = {it: receipt for it in found if (receipt := read_receipt(it))}
    best = {receipt.identity: it for it, receipt in sorted(receipts.items(), key=lambda pair: generation(pair[0]))}
    complete = [
        Standing(
            folder=it,
            receipt=receipt,
            current=it == now,
            replaced=None if best[receipt.identity] == it else best[receipt.identity].name,
        )
        for it, receipt in sorted(receipts.items(), key=lambda pair: (pair[1].made, pair[0].name))
    ]
    unfinished = [
        Standing(folder=it, receipt=None, current=it == now)
        for it in found
        if it not in receipts and marker_of(it).exists()
    ]
    return (*complete, *unfinished)


def generation(folder: Path) -> int:
    """Return 1 for an environment as first built, and N for the one that the N-th build, a repair, made."""
    _, _, number = folder.name.partition(".")
    return int(number) if number.isdecimal() else _FIRST


def next_generation(folder: Path) -> Path:
    """Return the first folder beside this one that no build of the same lock has taken yet."""
    base, number = folder.name.partition(".")[0], generation(folder) + 1
    while os.path.lexists(folder.with_name(f"{base}.{number}")):
        number += 1
    return folder.with_name(f"{base}.{number}")


def installed(lock: Lock, suffix: str = "") -> tuple[Path, Receipt] | None:
    """Return the newest complete environment of this very lock, when there is one; `suffix` tells of its base."""
    there, name = paths.environments(), f"{lock.name}{suffix}"
    for folder in sorted([there / name, *there.glob(f"{name}.*")], key=generation, reverse=True):
        receipt = read_receipt(folder)
        if receipt and receipt.lock_digest == lock.table.digest:
            return folder, receipt
    return None


def current_folder() -> Path | None:
    """Return the folder that `current` points at, when it points at one of ours."""
    link = paths.current()
    if not link.is_symlink():
        return None
    target = (link.parent / os.readlink(link)).resolve()
    return paths.environments() / target.name if target.parent == paths.environments().resolve() else target


def switch_to(folder: Path) -> bool:
    """Point `current` at an environment by one rename; return whether it pointed elsewhere before.

    The way back is written first: killed in between, it names an environment that did not become current, which
    `ways_back` passes over.
    """
    link = paths.current()
    target = os.path.relpath(folder, link.parent)
    if link.is_symlink() and os.readlink(link) == target:
        return False
    with held(link, wait=60):
        if os.path.lexists(link) and not link.is_symlink():
            raise InstallError(
                f"`{link}` is not a link of ours", hint="move it away, or name another folder: --home DIR"
            )
        _write_history((*_until_current(), folder.name))
        link_atomically(link, target)
    return True


def settle(folder: Path) -> None:
    """Remove the marker of a build that was killed after its receipt was written: it is complete."""
    if marker_of(folder).exists() and not is_held(folder):
        marker_of(folder).unlink(missing_ok=True)


def step_back_to(folder: Path) -> None:
    """Make an earlier environment current, and forget the steps after it."""
    with held(paths.current(), wait=60):
        names = _until_current()
        while names and names[-1] != folder.name:
            names = names[:-1]
        _write_history(names or (folder.name,))
        link_atomically(paths.current(), os.path.relpath(folder, paths.current().parent))


def ways_back() -> tuple[Standing, ...]:
    """Return the environments that were current before this one, last first; only those that are still good.

    Behind those that the history names come older ones that it does not: it may be gone, or the folder copied.
    """
    complete = [it for it in standing() if it.receipt]
    good = {it.folder.name: it for it in complete if not it.replaced and not it.current}
    history = _until_current()
    at = next((place for place, it in enumerate(complete) if it.current), len(complete))
    older = [it.folder.name for it in complete[:at] if it.folder.name not in history]
    names = dict.fromkeys((*reversed(history), *reversed(older)))
    return tuple(good[name] for name in names if name in good)


def _until_current() -> tuple[str, ...]:
    """Return the names that were current one after the other, up to the one that is."""
    try:
        plain = json.loads(_history().read_text(encoding="utf-8"))
        names = tuple(str(name) for name in plain["switches"])
    except (OSError, ValueError, KeyError, TypeError):
        names = ()
    now = current_folder()
    if now is None:
        return ()
    while names and names[-1] != now.name and now.name in names:
        names = names[:-1]
    return names if names and names[-1] == now.name else (*names, now.name)


def _history() -> Path:
    return paths.home() / "switches.json"


def _write_history(names: tuple[str, ...]) -> None:
    write_atomically(_history(), json.dumps({"switches": names[-_KEPT:]}, indent=2) + "\n")
