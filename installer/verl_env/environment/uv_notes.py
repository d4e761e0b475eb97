"""What uv notes beside a package that came from a local wheel: when that file was made. Taken out again.

The same lock is the same environment wherever its wheels came from; a file's time on some disk is no part of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from verl_env.files import write_atomically

if TYPE_CHECKING:
    from pathlib import Path

_NOTE = "uv_cache.json"


def drop_notes(folder: Path) -> None:
    """Remove uv's notes from an environment that is being built, and from the RECORDs that list them."""
    for note in folder.glob(f"lib/python*/site-packages/*.dist-info/{_NOTE}"):
        record = note.with_name("RECORD")
        lines = record.read_bytes().splitlines(keepends=True)
        start = f"{note.parent.name}/{_NOTE},".encode()
        write_atomically(record, b"".join(line for line in lines if not line.startswith(start)))
        note.unlink()
