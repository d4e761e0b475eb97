"""A tar inside valid zstd, not compressed: for tools that want `.tar.zst`, with no library and every offset kept.

Each frame holds one raw block of up to 128 KiB (RFC 8878, 3.1.1: single segment, content size in four bytes), so a
byte of the tar is found by arithmetic, and a killed writer goes on after the last whole frame.
"""

from __future__ import annotations

import struct

MAGIC = b"\x28\xb5\x2f\xfd"
CONTENT = 1 << 17  # bytes of the tar in a full frame: the most that one block may hold
OVERHEAD = 12  # bytes before them
_DESCRIPTOR = 0xA0  # single segment, content size of 4 bytes, no checksum, no dictionary


def frame_of(content: bytes) -> bytes:
    """Return one frame around at most CONTENT bytes."""
    block = 1 | len(content) << 3  # the last block of its frame, raw
    return MAGIC + struct.pack("<BI", _DESCRIPTOR, len(content)) + block.to_bytes(3, "little") + content


def framed_bytes(size: int) -> int:
    """Return how long `size` bytes are in frames."""
    return size + OVERHEAD * -(-size // CONTENT)


def plain_bytes(framed: int) -> int:
    """Return how many bytes of content the whole frames hold that a file of this length begins with."""
    return framed // (CONTENT + OVERHEAD) * CONTENT


def is_ours(head: bytes) -> bool:
    """Whether a file that begins so is made of such frames; False for zstd of another writer."""
    if len(head) < OVERHEAD or not head.startswith(MAGIC):
        return False
    descriptor, size = struct.unpack("<BI", head[4:9])
    return bool(descriptor == _DESCRIPTOR) and head[9:12] == (1 | size << 3).to_bytes(3, "little")
