"""Wheels with members that lead outside of where they are unpacked: uv leaves those out; here the wheel is refused."""

from __future__ import annotations

import zipfile
from typing import TYPE_CHECKING

from verl_env import fetch, uv
from verl_env.errors import InstallError, VerlEnvError
from verl_env.indexes import read_indexes
from verl_env.lock.lockfile import parse_lock

if TYPE_CHECKING:
    from verl_env.lock.lockfile import Lock
    from verl_env.process import Completed

_SAID = "Skipping unsafe file name: "  # uv 0.13.9, crate uv-extract, at level WARN


def refuse_strays(lock_text: str, done: Completed) -> None:
    """Raise InstallError naming the wheel, and make uv forget it: from its cache it would come without a warning."""
    members = [line.partition(_SAID)[2].strip() for line in done.stderr.splitlines() if _SAID in line]
    if not members:
        return
    owners = _owners(parse_lock(lock_text, "the lock"), set(members))
    uv.forget_cached([name.split(" ")[0] for name in owners])
    raise InstallError(
        f"{', '.join(owners) or 'a wheel'} has files that lead outside of the environment",
        details=tuple(f"`{member}`" for member in members),
        hint="do not use that wheel, and tell whoever made the lock; nothing was written outside",
    )


def _owners(lock: Lock, members: set[str]) -> list[str]:
    """Return the packages whose wheels list one of these members, by the directories at the ends of the wheels."""
    door = fetch.open_door(read_indexes())
    found = []
    for pin in lock.pins:
        url = lock.urls.get(pin.file)
        if url is None or pin.is_sdist:
            continue
        try:
            with door.open(url, pin.size) as stream, zipfile.ZipFile(stream) as wheel:
                if members & set(wheel.namelist()):
                    found.append(f"{pin.name} {pin.version}")
        except (VerlEnvError, OSError, zipfile.BadZipFile):
            continue
    return found
