"""On each node of a Ray cluster: an actor that runs the agent, and writes the file that is arriving.

It travels to its node as it stands (cloudpickle, by value), and imports what it needs there.
"""

from __future__ import annotations

from typing import Any


class Agent:
    """On each node: the agent's functions, and the file that is arriving."""

    def __init__(self, source: str, manager: tuple[str, int]) -> None:
        """Take the agent's source, which this environment does not have, and where this node's Ray answers."""
        import types

        self.agent: Any = types.ModuleType("verl_env_agent")
        exec(compile(source, "agent.py", "exec"), self.agent.__dict__)
        self.manager = manager
        self.lines: list[str] = []
        self.done: dict[str, Any] | None = None

    def begin(self, request: dict[str, Any]) -> None:
        """Start to serve a request."""
        import threading

        self.lines, self.done = [], None

        def serve() -> None:
            try:
                self.done = self.agent.serve(request, self.lines.append)
            except Exception as err:
                self.done = {"error": f"{type(err).__name__}: {err}"}

        threading.Thread(target=serve, daemon=True).start()

    def poll(self, seen: int) -> tuple[list[str], dict[str, Any] | None]:
        """Return the lines after the first `seen`, and the answer when there is one; wait a moment for either."""
        import time

        until = time.monotonic() + 1.0
        while self.done is None and len(self.lines) <= seen and time.monotonic() < until:
            time.sleep(0.02)
        done = self.done  # before the lines: what was told before the end is not lost
        return self.lines[seen:], done

    def arrived(self, to: str, size: int, chunk: int) -> tuple[int, float]:
        """Return how many bytes of a file are here, in whole chunks, and how full the store is."""
        import os

        os.makedirs(os.path.dirname(to), exist_ok=True)
        if os.path.exists(to) and os.path.getsize(to) == size:
            return size, self.fullness()
        part = f"{to}.part"
        have = os.path.getsize(part) // chunk * chunk if os.path.exists(part) else 0
        return (min(have, size // chunk * chunk), self.fullness())

    def take(self, to: str, place: tuple[int, int], content: bytes, digest: str) -> tuple[int, float]:
        """Write a chunk at its place, when it is what was sent; at the end of the file, give it its name."""
        import hashlib
        import os

        offset, size = place
        if hashlib.sha256(content).hexdigest() != digest:
            raise ValueError(f"the bytes from {offset} on arrived damaged")
        handle = os.open(f"{to}.part", os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        with open(handle, "wb") as part:
            part.truncate(offset)
            part.seek(offset)
            part.write(content)
            part.flush()
            if offset + len(content) == size:
                os.fsync(part.fileno())
        if offset + len(content) == size:
            os.replace(f"{to}.part", to)
        return offset + len(content), self.fullness()

    def fullness(self) -> float:
        """Return the part of this node's object store that is in use; 0 where this Ray does not say."""
        try:
            from ray._private.internal_api import node_stats  # type: ignore[import-not-found]

            stats = node_stats(*self.manager, include_memory_info=False).store_stats
            return float(stats.object_store_bytes_used / max(1, stats.object_store_bytes_avail))
        except Exception:
            return 0.0
