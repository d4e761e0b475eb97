"""Reading a lockfile from disk. An edge."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from verl_env.errors import LockError
from verl_env.files import read_bounded
from verl_env.lock.lockfile import Lock, parse_lock

if TYPE_CHECKING:
    from pathlib import Path

_MOST_BYTES = 32_000_000  # a lock of 255 packages has 0.1 MB


def read_lock(path: Path) -> Lock:
    """Read a lockfile; raises LockError when it is not there, not whole or not ours."""
    return parse_lock(read_text(path), str(path))


def read_text(path: Path) -> str:
    """Read a lockfile's text; raises LockError, for what is no file and what cannot be a lockfile by size."""
    try:
        content = read_bounded(path, _MOST_BYTES)
        return io.TextIOWrapper(io.BytesIO(content), encoding="utf-8").read()  # line ends as open() reads them
    except UnicodeDecodeError as err:
        raise LockError(f"`{path}` is not text: {err}", hint="write it again: verl-env lock") from err
    except (OSError, ValueError) as err:
        what = err.strerror if isinstance(err, OSError) else str(err)
        raise LockError(f"`{path}` cannot be read: {what}", hint="write one: verl-env lock") from err
