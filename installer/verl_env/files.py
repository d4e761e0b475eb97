"""Writing so that a reader sees the old file or the new one, and never half of either; reading what may be anything."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def read_bounded(path: Path, most: int) -> bytes:
    """Read a file or pipe whole; raises OSError, also for more than `most` bytes: a device has no end."""
    with path.open("rb") as stream:
        content = stream.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
    return content


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write to a temporary sibling, flush it to disk, and rename it over `path` (rename(2) is atomic)."""
    with writing_atomically(path) as stream:
        stream.write(content.encode() if isinstance(content, str) else content)


@contextlib.contextmanager
def writing_atomically(path: Path) -> Iterator[BinaryIO]:
    """Give a stream whose content becomes `path` when the block ends well, and vanishes when it does not."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(name, (path.stat().st_mode & 0o7777) if path.exists() else 0o666 & ~_umask())
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise


def link_atomically(link: Path, target: str) -> None:
    """Point the symbolic link at `target` by one rename, whether or not it exists."""
    temporary = link.with_name(f".{link.name}.{os.getpid()}.tmp")
    with contextlib.suppress(FileNotFoundError):
        temporary.unlink()
    temporary.symlink_to(target)
    os.replace(temporary, link)


def _umask() -> int:
    """Read the process's umask; there is no way to read it without setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
