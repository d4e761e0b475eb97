"""One verl-env at a time works on an environment: a lock file beside it, freed by the kernel when its holder dies."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from typing import TYPE_CHECKING

from verl_env import output, uv
from verl_env.errors import BusyError, PreflightError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_PAUSE = 0.1  # seconds between two tries
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)


def lock_path(folder: Path) -> Path:
    """Return the lock file of one environment."""
    return folder.with_name(f".{folder.name}.lock")


@contextlib.contextmanager
def held(folder: Path, *, wait: float) -> Iterator[bool]:
    """Hold an environment's lock; yield whether somebody else held it first.

    Waits up to `wait` seconds, saying so; raises BusyError after that. A dead holder's lock is free as soon as
    the uv that it started has ended too: that uv inherits the lock, since it may go on writing.
    """
    path = lock_path(folder)
    handle = _try(path)
    waited = handle is None
    if handle is None:
        if wait > 0:
            output.note(f"{_holder(path)} is at work on {folder.name}; waiting for it, up to {wait:.0f} s (--wait)")
        handle = _wait(path, wait)
    if handle is None:
        raise BusyError(
            f"{_holder(path)} is still at work on {folder.name} after {wait:.0f} s",
            hint="wait longer with --wait SECONDS, or end it",
        )
    uv.held_locks.add(handle)
    try:
        yield waited
    finally:
        uv.held_locks.discard(handle)
        path.unlink(missing_ok=True)
        os.close(handle)


def is_held(folder: Path) -> bool:
    """Whether some verl-env is at work on this environment now."""
    path = lock_path(folder)
    if not path.exists():
        return False
    handle = _try(path)
    if handle is None:
        return True
    os.close(handle)
    return False


def _wait(path: Path, seconds: float) -> int | None:
    """Try until it is ours or the time is over; on the monotonic clock, which nobody sets back."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(_PAUSE)
        if (handle := _try(path)) is not None:
            return handle
    return None


def _try(path: Path) -> int | None:
    """Take the lock and return its handle, or None when somebody holds it.

    The file may be removed by its last holder between opening and locking: then it is another file's name by now.
    """
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.exists() and os.path.samestat(os.fstat(handle), path.stat()):
                os.ftruncate(handle, 0)
                os.write(handle, f"{os.getpid()} on {os.uname().nodename}\n".encode())
                return handle
        except BlockingIOError:
            os.close(handle)
            return None
        except OSError as err:
            os.close(handle)
            if err.errno not in _NO_LOCKS:
                raise
            raise PreflightError(
                f"the file system of `{path.parent}` has no locks: {err.strerror}",
                hint="name a folder on another file system: --home DIR",
            ) from err
        os.close(handle)


def _holder(path: Path) -> str:
    """Name who holds the lock, as far as the file says."""
    try:
        said = path.read_text(encoding="utf-8").strip()
    except OSError:
        said = ""
    return f"another verl-env (process {said})" if said else "another verl-env"
