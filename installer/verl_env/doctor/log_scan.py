"""One pass over a log of any size, in bounded memory: which signatures are seen, and where."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from verl_env.doctor.failures import Signature
from verl_env.doctor.log_text import Line, plain_bytes, read_line

if TYPE_CHECKING:
    from collections.abc import Iterator

_BLOCK = 1 << 20  # bytes read at a time
_AROUND = 1 << 13  # bytes before and after a line that `near` may look at: some dozens of lines
_WINDOW = 1500  # bytes of a line looked at on each side of a word: minified JSON comes in lines of megabytes
_ENOUGH = 100  # sightings kept of one signature
# A program that ends badly says one of these; a log without any is most likely of a run that went well.
_BAD_ENDS = (
    *(b"Traceback (most recent call last)", b"core dumped", b"fatal error", b"Fatal error", b"ERROR"),
    *(b"\nerror:", b"\nError"),
)
_AT_START = (b"error:", b"Error")
# Pieces that many words share. A block is searched for these and for words without any of them, and only lines with a
# hit are searched for the words themselves: a fifth of the time of searching for each word.
_ANCHORS = (
    *("cannot", "version", "undefined symbol", "not found", "unsupported", "no such", "nvcc", "nccl", "cuda", "fail"),
    *("error", "flash", "nvml", "mismatch", "incompatib", "denied", "module", "device", "gnu", "compil", "process"),
    *("required", "connect", "memory", "cache", "not supported", "compute capability", "gcc", "impossible"),
    *("expandable", "has no attribute", "shared", "sm_", "sm1", "lib", "space left", "fatal", "ninja", "is too old"),
    *("raylet", "depends on", "matching", "errno", "kernel", "numpy", "driver", "gcs", "dead", "invalid", "killed"),
    *("unable", "oom", "custom", "net/", "you have", "dev/shm", "marked", "supported", "supports", "conclude"),
    *("running", "installed", "disk", "only ", "crt", "cub", "cud", "unsatisf", "not ", "argument", "-m", "gated"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """One signature seen in one line (counted from 1), with what its groups caught."""

    signature: Signature
    number: int
    line: Line
    groups: dict[str, str]


@dataclass(slots=True, kw_only=True)
class Scan:
    """What one pass found: sightings in the order of the log, its size, and whether anything failed in it."""

    sightings: list[Sighting] = field(default_factory=list)
    lines: int = 0
    bytes: int = 0
    failed: bool = False


class _Compiled(NamedTuple):
    """A signature with its expressions compiled."""

    signature: Signature
    pattern: re.Pattern[str]
    unless: re.Pattern[str] | None
    near: re.Pattern[str] | None


def scan_log(stream: BinaryIO, signatures: tuple[Signature, ...]) -> Scan:
    """Read the stream to its end; time grows with its length, memory does not."""
    scanner = _Scanner(signatures)
    before = b""
    block = b""
    for coming in _blocks(stream):
        scanner.look(before, block, coming[:_AROUND])
        before, block = (before + block)[-_AROUND:], coming
    scanner.look(before, block, b"")
    return scanner.scan


def _blocks(stream: BinaryIO) -> Iterator[bytes]:
    """Yield whole lines, about a block at a time; a line longer than a block is cut."""
    pending = b""
    while read := stream.read(_BLOCK):
        pending += read
        cut = max(pending.rfind(b"\n"), pending.rfind(b"\r", 0, -1)) + 1
        if not cut and len(pending) > _BLOCK:
            cut = len(pending)
        if cut:
            yield plain_bytes(pending[:cut])
            pending = pending[cut:]
    if pending:
        yield plain_bytes(pending)


class _Scanner:
    """The pass itself."""

    def __init__(self, signatures: tuple[Signature, ...]) -> None:
        self.scan = Scan()
        self._known = [_compile(one) for one in signatures]
        self._left = [_ENOUGH] * len(self._known)
        self._by_anchor: dict[bytes, list[tuple[bytes, int]]] = {}
        for number, one in enumerate(self._known):
            for word in one.signature.words:
                anchor = next((piece for piece in _ANCHORS if piece in word), word)
                self._by_anchor.setdefault(anchor.encode(), []).append((word.encode(), number))

    def look(self, before: bytes, block: bytes, after: bytes) -> None:
        """Look at one block of whole lines, between what came before and what comes after."""
        low = block.lower()  # bytes: only ASCII changes, so that places stay the same
        self.scan.failed = self.scan.failed or any(word in block for word in _BAD_ENDS) or block.startswith(_AT_START)
        counted, number = 0, self.scan.lines
        for (start, end), (at, wanted) in sorted(self._candidates(low).items()):
            number += low.count(b"\n", counted, start)
            counted = start
            self._try(before, block, after, (start, end), at, wanted, number + 1)
        self.scan.lines += low.count(b"\n") + (bool(block) and not block.endswith(b"\n"))
        self.scan.bytes += len(block)

    def _candidates(self, low: bytes) -> dict[tuple[int, int], tuple[int, set[int]]]:
        """Return the lines that hold a word, with the place of the first one and the signatures to try."""
        found: dict[tuple[int, int], tuple[int, set[int]]] = {}
        for anchor, words in self._by_anchor.items():
            at = low.find(anchor)
            while at >= 0:
                start = low.rfind(b"\n", 0, at) + 1
                end = low.find(b"\n", at)
                end = len(low) if end < 0 else end
                for word, number in words:
                    if self._left[number] and (place := low.find(word, start, end)) >= 0:
                        first, others = found.setdefault((start, end), (place, set()))
                        others.add(number)
                        found[start, end] = (min(first, place), others)
                at = low.find(anchor, end)
        return found

    def _try(
        self, before: bytes, block: bytes, after: bytes, place: tuple[int, int], at: int, wanted: set[int], number: int
    ) -> None:
        """Hold one line against the signatures whose words it has."""
        start, end = max(place[0], at - _WINDOW), min(place[1], at + _WINDOW)
        line = read_line(block[start:end].decode(errors="replace"))
        around: str | None = None
        for index in sorted(wanted):
            one = self._known[index]
            match = one.pattern.search(line.text) if self._left[index] else None
            if match is None or (one.unless and one.unless.search(line.text)):
                continue
            if one.near:
                if around is None:
                    around = _around(before, block, after, place)
                if not one.near.search(around):
                    continue
            self._left[index] -= 1
            groups = {name: value for name, value in match.groupdict().items() if value}
            self.scan.sightings.append(Sighting(signature=one.signature, number=number, line=line, groups=groups))


def _around(before: bytes, block: bytes, after: bytes, place: tuple[int, int]) -> str:
    """Return the neighbourhood of a line, itself included."""
    start, end = place
    above = (before + block[:start])[-_AROUND:] if start < _AROUND else block[start - _AROUND : start]
    below = (block[end : end + _AROUND] + after)[:_AROUND]
    return (above + block[start : min(end, start + _AROUND)] + below).decode(errors="replace")


def _compile(one: Signature) -> _Compiled:
    return _Compiled(
        signature=one,
        pattern=re.compile(one.pattern),
        unless=re.compile(one.unless) if one.unless else None,
        near=re.compile(one.near) if one.near else None,
    )
