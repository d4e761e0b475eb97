"""Taking an environment away: out of its name by one rename, then file by file. Half an environment has no name."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verl_env.environment.holding import is_held
from verl_env.environment.receipt import read_receipt
from verl_env.environment.standing import marker_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_SUFFIX = ".removing"
_DAY = 86_400  # seconds


def remove_environment(folder: Path) -> None:
    """Remove an environment of ours, complete or not; its lock must be held. Raises OSError when files stay."""
    aside = folder.with_name(f".{folder.name}{_SUFFIX}")
    if os.path.lexists(aside):
        remove_tree(aside)
    if os.path.lexists(folder):
        folder.rename(aside)
        remove_tree(aside)
    marker_of(folder).unlink(missing_ok=True)


def left_behind(environments: Path) -> Iterator[Path]:
    """Yield what an interrupted removal left: folders that have lost their name."""
    for path in sorted(environments.glob(f".*{_SUFFIX}")):
        if path.is_dir() and not path.is_symlink():
            yield path


def sweep(home: Path, environments: Path) -> None:
    """Remove what killed processes left besides folders: markers of finished builds, temporary files of a day ago."""
    for marker in environments.glob(".*.building"):
        folder = marker.with_name(marker.name[1:].removesuffix(".building"))
        finished = not os.path.lexists(folder) or read_receipt(folder) is not None
        if finished and not is_held(folder):
            marker.unlink(missing_ok=True)
    old = time.time() - _DAY
    for path in (*home.glob(".*.tmp"), *environments.glob(".*.tmp")):
        with contextlib.suppress(OSError):
            if path.lstat().st_mtime < old:
                path.unlink()
    # Folders of agents that were killed; marks and archives of verl-env that `cluster` left (the next sends its own).
    for path in (*home.glob(".cluster-*"), *(home / "self" / "cluster").glob("*")):
        with contextlib.suppress(OSError):
            if path.lstat().st_mtime < old:
                remove_tree(path) if stat.S_ISDIR(path.lstat().st_mode) else path.unlink()


def drop_bundles(home: Path, environments: Path) -> int:
    """Remove the bundles that `cluster install` kept for environments that are not here; return the bytes freed."""
    freed = 0
    for bundle in (home / "cluster").glob("*.tar"):
        if not (environments / bundle.stem).is_dir():
            freed += bundle.stat().st_size
            bundle.unlink()
            bundle.with_name(f"{bundle.name}.kept").unlink(missing_ok=True)
    return freed


def name_of(aside: Path) -> Path:
    """Return the folder that an interrupted removal was about."""
    return aside.with_name(aside.name[1:].removesuffix(_SUFFIX))


def remove_tree(folder: Path) -> None:
    """Remove a folder and what is in it, also where a wheel brought folders that cannot be written."""

    def retry(function: Callable[[str], Any], path: str, _error: object) -> None:
        with contextlib.suppress(OSError):
            os.chmod(Path(path).parent, stat.S_IRWXU)
            os.chmod(path, stat.S_IRWXU)
        if function in (os.scandir, os.open, os.listdir):  # a folder that could not be read is walked anew
            shutil.rmtree(path)
        else:
            function(path)

    shutil.rmtree(folder, onerror=retry)


def own_bytes(folder: Path) -> tuple[int, int]:
    """Return what removing a folder frees, and what stays because other links to it exist; both in bytes on disk."""
    freed = shared = 0
    for base, _, files in os.walk(folder):
        for name in files:
            with contextlib.suppress(OSError):
                about = os.lstat(f"{base}/{name}")
                if about.st_nlink > 1:
                    shared += about.st_blocks * 512
                else:
                    freed += about.st_blocks * 512
    return freed, shared
