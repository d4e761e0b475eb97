"""One file on its way to many nodes through Ray's object store: in chunks, a few at a time."""

from __future__ import annotations

import hashlib
import time
from typing import Any

import ray
from saying import say, short

CHUNK = 16 * 1024 * 1024  # bytes that travel as one object
START_SECONDS = 120.0  # for a worker process to start on every node
_WINDOW_MOST = 16  # chunks on their way at a time
_STORE_PART = 0.25  # of the smallest object store that our chunks may take
_BUSY_PART = 0.8  # of a store in use: then a running job needs it, and chunks wait
_BUSY_SECONDS = 1800.0
_STALLED_SECONDS = 120.0  # without an answer to a chunk: the node is given up


class Sending:
    """One file on its way: what each node has, and the chunks that were not answered yet."""

    def __init__(self, actors: dict[str, Any], to: str, size: int) -> None:
        """Begin with nothing known of the nodes."""
        stores = [it["Resources"].get("object_store_memory", 0) for it in ray.nodes() if it["Alive"]]
        self.window = max(1, min(_WINDOW_MOST, int(min(stores, default=0) * _STORE_PART / CHUNK)))
        self.actors, self.to, self.size = actors, to, size
        self.have: dict[str, int] = {}
        self.asked: dict[str, int] = {}  # how far chunks were sent, by name
        self.full: dict[str, float] = {}
        self.failed: dict[str, str] = {}
        self.flying: list[dict[Any, str]] = []  # one a chunk, oldest first: the answers that are awaited

    def begin(self) -> None:
        """Ask every node what it has."""
        asked = {it.arrived.remote(self.to, self.size, CHUNK): name for name, it in self.actors.items()}
        self.flying.append(asked)
        self.drain(0, START_SECONDS)
        self.asked = dict(self.have)

    def next_offset(self) -> int | None:
        """Return where the next chunk begins that somebody lacks; None when all have all."""
        least = min((at for name, at in self.asked.items() if name in self.have), default=self.size)
        return least if least < self.size else None

    def put(self, offset: int, content: bytes) -> None:
        """Put one chunk into the store once, and have everybody who lacks it take it."""
        self.wait_while_busy()
        reference = ray.put(content)
        digest = hashlib.sha256(content).hexdigest()
        flying = {}
        for name in [name for name, at in self.asked.items() if at == offset and name in self.have]:
            taken = self.actors[name].take.remote(self.to, (offset, self.size), reference, digest)
            flying[taken] = name
            self.asked[name] = offset + len(content)
        self.flying.append(flying)
        self.drain(self.window - 1)

    def drain(self, most: int, seconds: float = _STALLED_SECONDS) -> None:
        """Wait until so many chunks are on their way at most; who does not answer is given up."""
        while len(self.flying) > most:
            flying = self.flying.pop(0)
            ready, late = ray.wait(list(flying), num_returns=len(flying), timeout=seconds)
            for reference in ready:
                self.note(flying[reference], reference)
            for reference in late:
                self.lose(flying[reference], f"no answer within {seconds:.0f} s")

    def note(self, name: str, reference: Any) -> None:
        """Take a node's answer."""
        if name in self.failed:
            return
        try:
            self.have[name], self.full[name] = ray.get(reference)
            say(moved=[name, self.have[name]])
        except Exception as err:
            self.lose(name, short(err))

    def lose(self, name: str, why: str) -> None:
        """Go on without a node."""
        self.failed.setdefault(name, why)
        self.have.pop(name, None)
        self.full.pop(name, None)

    def wait_while_busy(self) -> None:
        """Wait while a store is full of other objects: a running job's would be spilled for ours."""
        until = time.monotonic() + _BUSY_SECONDS
        told = False
        while self.full and max(self.full.values()) > _BUSY_PART and time.monotonic() < until:
            if not told:
                name = max(self.full, key=lambda it: self.full[it])
                say(told=[name, f"the object store is {self.full[name]:.0%} full: waiting for the job that uses it"])
                told = True
            self.drain(0)
            time.sleep(1.0)
            again = {self.actors[name].fullness.remote(): name for name in self.full}
            for reference in ray.wait(list(again), num_returns=len(again), timeout=_STALLED_SECONDS)[0]:
                self.note_fullness(again[reference], reference)

    def note_fullness(self, name: str, reference: Any) -> None:
        """Take a node's word on its store; one that died is lost."""
        try:
            self.full[name] = ray.get(reference)
        except Exception as err:
            self.lose(name, short(err))
