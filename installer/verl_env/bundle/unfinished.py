"""A bundle while it is written: bytes of the tar go in at the end, and what an interrupted writer left is taken up."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from verl_env.bundle import frames
from verl_env.bundle.layout import (
    HEADER_BYTES,
    BundleError,
    Manifest,
    manifest_size,
    parse_manifest,
    placed,
    render_manifest,
)
from verl_env.bundle.pieces import PieceReader, PieceWriter

if TYPE_CHECKING:
    from pathlib import Path


class Unfinished:
    """The bundle while it is written: bytes of the tar go in at the end, framed when the name asks for zstd."""

    def __init__(self, target: Path, limit: int | None) -> None:
        """Take up what an interrupted writer left, up to its last whole frame."""
        self._pieces = PieceWriter(target, limit)
        self._framed = target.name.endswith(".zst")
        self._waiting = bytearray()
        if self._framed:
            self._pieces.cut(frames.framed_bytes(frames.plain_bytes(self._pieces.size)))
        self.size = frames.plain_bytes(self._pieces.size) if self._framed else self._pieces.size

    def append(self, data: bytes) -> None:
        """Write at the end."""
        self.size += len(data)
        if not self._framed:
            self._pieces.append(data)
            return
        self._waiting += data
        while len(self._waiting) >= frames.CONTENT:
            self._pieces.append(frames.frame_of(bytes(self._waiting[: frames.CONTENT])))
            del self._waiting[: frames.CONTENT]

    def cut(self, size: int) -> None:
        """Forget everything after `size` bytes of the tar."""
        if not self._framed:
            self._pieces.cut(size)
            self.size = size
            return
        whole = size // frames.CONTENT * frames.CONTENT
        kept = self.read_at(whole, size - whole) if size > whole else b""
        self._pieces.cut(frames.framed_bytes(whole))
        self._waiting = bytearray(kept)
        self.size = size

    def read_at(self, offset: int, count: int) -> bytes:
        """Read back bytes of the tar."""
        reader = PieceReader(self._pieces.parts())
        try:
            if not self._framed:
                return reader.read_at(offset, count)
            found = bytearray()
            written = self.size - len(self._waiting)
            while count > 0 and offset < written:
                number, at = divmod(offset, frames.CONTENT)
                start = number * (frames.CONTENT + frames.OVERHEAD) + frames.OVERHEAD + at
                data = reader.read_at(start, min(count, frames.CONTENT - at))
                found += data
                offset += len(data)
                count -= len(data)
            return bytes(found + self._waiting[offset - written : offset - written + count] if count > 0 else found)
        finally:
            reader.close()

    def member(self, manifest: Manifest, path: str) -> bytes | None:
        """Return one small member when all of it is there and right."""
        for it in placed(render_manifest(manifest), manifest):
            if it.member.path == path and self.size >= it.start + it.member.size:
                data = self.read_at(it.start, it.member.size)
                return data if hashlib.sha256(data).hexdigest() == it.member.sha256 else None
        return None

    def finish(self) -> tuple[Path, ...]:
        """Write what waits, and give the files their names."""
        if self._waiting:
            self._pieces.append(frames.frame_of(bytes(self._waiting)))
            self._waiting.clear()
        return self._pieces.finish()


def unfinished_manifest(target: Path, limit: int | None) -> Manifest | None:
    """Return the list of contents of what an interrupted writer left, when that much of it is there."""
    there = Unfinished(target, limit)
    if there.size < HEADER_BYTES:
        return None
    size = manifest_size(there.read_at(0, HEADER_BYTES))
    if size is None or there.size < HEADER_BYTES + size:
        return None
    try:
        return parse_manifest(there.read_at(HEADER_BYTES, size), str(target))
    except BundleError:
        return None
