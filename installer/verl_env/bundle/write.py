"""Writing a bundle, so that a killed writer goes on where it was: each file is fetched straight to its place in it."""

from __future__ import annotations

import fcntl
import hashlib
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from verl_env import output
from verl_env.bundle.layout import BundleError, Manifest, Placed, padding, placed, render_manifest, total_bytes
from verl_env.bundle.read import Bundle
from verl_env.bundle.unfinished import Unfinished
from verl_env.errors import BusyError
from verl_env.fetch import FetchError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from verl_env.fetch import Door

_BLOCK = 1 << 20
_TRIES = 5  # of one file without a byte of progress
_PAUSE = 1.0  # seconds before the second try; doubled each time


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """Where a member's bytes come from: memory, a file here, an older bundle's member, a server, or its twin.

    The twin is an earlier member of the same bundle with the same bytes: verl-env and a row need some packages both.
    """

    data: bytes | None = None
    path: Path | None = None
    url: str = ""
    older: tuple[Bundle, str] | None = None
    twin: tuple[Unfinished, Placed] | None = None

    def blocks(self, door: Door, start: int) -> Iterator[bytes]:
        """Yield the bytes from `start` on; raises FetchError or OSError."""
        if self.data is not None:
            yield self.data[start:]
        elif self.older is not None:
            yield from self.older[0].stream(self.older[1], start)
        elif self.twin is not None:
            there, it = self.twin
            for at in range(start, it.member.size, _BLOCK):
                yield there.read_at(it.start + at, min(_BLOCK, it.member.size - at))
        elif self.path is not None:
            with self.path.open("rb") as stream:
                stream.seek(start)
                while block := stream.read(_BLOCK):
                    yield block
        else:
            yield from door.stream(self.url, start)


def write_bundle(
    target: Path, manifest: Manifest, contents: Mapping[str, Content], door: Door, *, limit: int | None = None
) -> tuple[Path, ...]:
    """Write the bundle and return its files; raises FetchError or BundleError, and what was fetched stays."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with _alone(target):
        there = Unfinished(target, limit)
        listed = render_manifest(manifest)
        members = tuple(placed(listed, manifest))
        _keep_what_is_right(there, members, listed)
        whole = total_bytes(listed, manifest)
        tell = _teller(whole)
        written: dict[tuple[str, int], Placed] = {}
        for it in members:
            twin = written.setdefault((it.member.sha256, it.member.size), it)
            if it.end > there.size:
                content = Content(data=listed) if it is members[0] else contents.get(it.member.path, Content(data=b""))
                if content.url and twin is not it:
                    content = Content(twin=(there, twin))
                _write_member(there, it, content, door, tell)
        there.append(bytes(max(0, whole - there.size)))
        return there.finish()


@contextmanager
def _alone(target: Path) -> Iterator[None]:
    """Let one writer at a time work on a bundle; the kernel frees the lock of a dead one."""
    path = target.with_name(f".{target.name}.lock")
    with path.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as err:
            raise BusyError(
                f"another verl-env is writing `{target}`", hint="wait for it, or name another file"
            ) from err
        yield
        path.unlink(missing_ok=True)


def _keep_what_is_right(there: Unfinished, members: tuple[Placed, ...], listed: bytes) -> None:
    """Cut what is there after the last byte that belongs to this bundle; say what is kept."""
    head = members[0].header + listed
    if there.size == 0:
        return
    if there.read_at(0, len(head)) != head:
        output.note("what an earlier, unfinished bundle left is of other contents: starting anew")
        there.cut(0)
        return
    kept = there.size
    for it in members[1:]:
        header = it.start - len(it.header)
        if there.size <= header:
            break
        if there.read_at(header, min(len(it.header), there.size - header)) != it.header[: there.size - header]:
            kept = header
            break
        if there.size >= it.start + it.member.size and not _is_right(there, it):
            kept = header
            break
    there.cut(min(kept, members[-1].end))
    output.note(f"going on after {output.human_bytes(there.size)} that are there already")


def _is_right(there: Unfinished, it: Placed) -> bool:
    """Whether a member's content is the listed one, and what follows it is nothing."""
    end = it.start + it.member.size
    after = there.read_at(end, min(it.end, there.size) - end)
    return not any(after) and _hash_of(there, it, it.member.size).hexdigest() == it.member.sha256


def _hash_of(there: Unfinished, it: Placed, count: int) -> hashlib._Hash:
    digest = hashlib.sha256()
    for at in range(0, count, _BLOCK):
        digest.update(there.read_at(it.start + at, min(_BLOCK, count - at)))
    return digest


def _write_member(
    there: Unfinished, it: Placed, content: Content, door: Door, tell: Callable[[int, str], None]
) -> None:
    """Bring one member to its end, from wherever it stands; a wrong file is taken out again and named."""
    if there.size < it.start:
        there.append(it.header[len(it.header) - (it.start - there.size) :])
    end = it.start + it.member.size
    digest = _hash_of(there, it, min(there.size, end) - it.start)
    tries, pause = 0, _PAUSE
    while there.size < end:
        before = there.size
        try:
            for block in content.blocks(door, there.size - it.start):
                fitting = block[: end - there.size]
                there.append(fitting)
                digest.update(fitting)
                tell(there.size, it.member.path)
                if there.size >= end:
                    break
            _expect_whole(there, it)
        except NotFoundError:
            raise
        except FetchError as err:
            tries = tries + 1 if there.size == before else 1
            if tries >= _TRIES:
                raise
            output.note(f"{err.message}; trying again")
            time.sleep(pause)
            pause = min(30.0, 2 * pause)
    if it.member.sha256 not in ("", digest.hexdigest()):
        there.cut(it.start - len(it.header))
        raise BundleError(
            f"`{it.member.path}` is another file than the lock names",
            details=(f"pinned sha256 {it.member.sha256}", f"found  sha256 {digest.hexdigest()}"),
            hint="do not use that index; name another: --index URL",
        )
    there.append(bytes(max(0, end + padding(it.member.size) - there.size)))


def _expect_whole(there: Unfinished, it: Placed) -> None:
    """Raise FetchError when a file ended before its size."""
    if there.size < it.start + it.member.size:
        raise FetchError(f"`{it.member.path}` ended after {there.size - it.start} bytes")


def _teller(whole: int) -> Callable[[int, str], None]:
    """Return what says, a twentieth at a time, how many bytes there are."""
    said = [-1]

    def tell(size: int, path: str) -> None:
        step = size * 20 // whole
        if step > said[0]:
            said[0] = step
            output.note(f"  {output.human_bytes(size)} of {output.human_bytes(whole)} ({path.rsplit('/', 1)[-1]})")

    return tell
