"""A few threads that hash. Ctrl-C may strike the main thread at any moment and must not leave a lock behind.

concurrent.futures waits on conditions written in Python, and an interrupt inside of their `__enter__` leaves them
locked: the program then waits for itself (seen). The queues here are written in C and cannot be left so.
"""

from __future__ import annotations

import os
import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

J = TypeVar("J")


class Workers(Generic[J]):
    """Threads, one a core, that do `work` with the jobs they are given; used as a context, from one thread."""

    def __init__(self, work: Callable[[J], None]) -> None:
        """Start no thread yet: most environments have little to hash."""
        self._work = work
        self._given: SimpleQueue[J | None] = SimpleQueue()
        self._done: SimpleQueue[tuple[J, Exception | None]] = SimpleQueue()
        self._threads = 0
        self.cores = len(os.sched_getaffinity(0))
        self.waiting = 0

    def __enter__(self) -> Workers[J]:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _: TracebackType | None
    ) -> None:
        for _thread in range(self._threads):
            self._given.put(None)

    def give(self, job: J) -> None:
        """Have a job done, in a new thread while there are fewer than cores."""
        self.waiting += 1
        self._given.put(job)
        if self._threads < min(self.cores, self.waiting):
            self._threads += 1
            threading.Thread(target=self._run, daemon=True).start()

    def take(self) -> J:
        """Return a job that was done, whichever is first; raise what it raised."""
        job, error = self._done.get()
        self.waiting -= 1
        if error:
            raise error
        return job

    def _run(self) -> None:
        while (job := self._given.get()) is not None:
            try:
                self._work(job)
            except Exception as err:  # noqa: BLE001, PERF203 - raised again where the job is taken back
                self._done.put((job, err))
            else:
                self._done.put((job, None))
