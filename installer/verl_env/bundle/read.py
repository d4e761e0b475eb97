"""A bundle that was carried here: whole or in pieces, every byte of it compared with its hash before it is used."""

from __future__ import annotations

import contextlib
import hashlib
import os
from typing import TYPE_CHECKING

from verl_env.bundle import frames
from verl_env.bundle.layout import (
    HEADER_BYTES,
    MANIFEST,
    BundleError,
    Manifest,
    Placed,
    manifest_size,
    parse_manifest,
    placed,
    total_bytes,
)
from verl_env.bundle.pieces import PieceReader, find_pieces
from verl_env.progress import steps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_CHUNK = 1 << 20
_MOST = 64_000_000  # bytes of a list of contents
_AGAIN = "carry it again, or write it again: verl-env bundle"


class Bundle:
    """An open bundle. Nothing of it is trusted but what `read` and `extract` have compared."""

    def __init__(self, given: Path) -> None:
        """Open it, read its list of contents, and see whether all of it is here; raises BundleError."""
        self.given, self.paths = given, find_pieces(given)
        self._reader = PieceReader(self.paths)
        try:
            self.manifest: Manifest = self._opened()
        except BaseException:
            self.close()
            raise

    def _opened(self) -> Manifest:
        """Read the list of contents."""
        given = self.given
        head = self._reader.read_at(0, HEADER_BYTES)
        self._framed = head.startswith(frames.MAGIC)
        if self._framed and not frames.is_ours(head):
            raise BundleError(
                f"`{given}` was compressed by another tool", hint=f"unpack it first: zstd -d {given.name}"
            )
        size = manifest_size(self._plain(0, HEADER_BYTES)) if len(head) == HEADER_BYTES else None
        if size is None or size > _MOST:
            raise BundleError(f"`{given}` is no bundle of verl-env", hint="make one: verl-env bundle")
        self._manifest_bytes = self._plain(HEADER_BYTES, size)
        if len(self._manifest_bytes) != size:
            raise BundleError(f"`{given}` is cut in its list of contents", hint=_AGAIN)
        manifest = parse_manifest(self._manifest_bytes, str(given))
        self._check_size(manifest)
        return manifest

    def close(self) -> None:
        """Close its files."""
        self._reader.close()

    @property
    def digest(self) -> str:
        """The sha256 of the list of contents, which names the hash of everything else."""
        return "sha256:" + hashlib.sha256(self._manifest_bytes).hexdigest()

    def _check_size(self, manifest: Manifest) -> None:
        whole = total_bytes(self._manifest_bytes, manifest)
        wanted = frames.framed_bytes(whole) if self._framed else whole
        if self._reader.size != wanted:
            raise BundleError(
                f"`{self.given}` is not whole: {self._reader.size} of {wanted} bytes are here",
                details=(f"{len(self.paths)} files, the last is {self.paths[-1].name}",),
                hint="carry what is missing, or carry it again",
            )

    def _plain(self, offset: int, count: int) -> bytes:
        """Read bytes of the tar."""
        if not self._framed:
            return self._reader.read_at(offset, count)
        found = []
        while count > 0:
            number, at = divmod(offset, frames.CONTENT)
            start = number * (frames.CONTENT + frames.OVERHEAD) + frames.OVERHEAD + at
            data = self._reader.read_at(start, min(count, frames.CONTENT - at))
            if not data:
                break
            found.append(data)
            offset += len(data)
            count -= len(data)
        return b"".join(found)

    def read(self, path: str) -> bytes:
        """Return one small member, compared with its hash."""
        for it in self._placed():
            if it.member.path == path:
                return b"".join(self._checked(it))
        raise BundleError(f"`{self.given}` has no `{path}`", hint=_AGAIN)

    def stream(self, path: str, start: int) -> Iterator[bytes]:
        """Yield a member's bytes from `start` on, as they are: the caller compares them."""
        for it in self._placed():
            if it.member.path == path:
                for at in range(it.start + start, it.start + it.member.size, _CHUNK):
                    yield self._plain(at, min(_CHUNK, it.start + it.member.size - at))

    def extract(self, folder: Path, wanted: Callable[[str], bool]) -> None:
        """Write the wanted members below `folder`; raises BundleError on the first that is another file."""
        chosen = [it for it in self._placed() if wanted(it.member.path)]
        with steps("unpacking the bundle", len(chosen), lines=False) as step:
            for it in chosen:
                self._write(it, folder / it.member.path)
                step(it.member.path)

    def _placed(self) -> Iterator[Placed]:
        """Yield all members but the list itself."""
        return (it for it in placed(self._manifest_bytes, self.manifest) if it.member.path != MANIFEST)

    def _write(self, it: Placed, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        mode = 0o755 if it.member.executable else 0o644
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
        try:
            with os.fdopen(handle, "wb") as stream:
                for block in self._checked(it):
                    stream.write(block)
        except BaseException:
            path.unlink()
            raise

    def _checked(self, it: Placed) -> Iterator[bytes]:
        """Yield a member's content; after the last block, raise BundleError when it was not the listed file."""
        if self._plain(it.start - len(it.header), len(it.header)) != it.header:
            raise BundleError(f"`{self.given}` is damaged before `{it.member.path}`", hint=_AGAIN)
        digest, at, end = hashlib.sha256(), it.start, it.start + it.member.size
        while at < end:
            block = self._plain(at, min(_CHUNK, end - at))
            if not block:
                break
            digest.update(block)
            at += len(block)
            yield block
        if digest.hexdigest() != it.member.sha256:
            raise BundleError(
                f"`{it.member.path}` in `{self.given}` is another file than the bundle lists",
                details=(f"listed sha256 {it.member.sha256}", f"found  sha256 {digest.hexdigest()}"),
                hint=_AGAIN,
            )
