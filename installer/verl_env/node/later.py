"""Probes at the same time, each with an end: a thread that hangs in the kernel is left behind.

Stale NFS and a stuck driver do that.
`concurrent.futures` would not do: its threads are joined when the interpreter exits, so one that hangs would
keep the whole program from ending.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

T = TypeVar("T")
R = TypeVar("R")


class Later(Generic[T]):
    """A call that has been started in a thread of its own, and whose result is asked for later."""

    def __init__(self, call: Callable[[], T]) -> None:
        """Start the call now."""
        self._call = call
        self._value: list[T] = []
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        """Run the call and keep what it returned or raised."""
        try:
            self._value.append(self._call())
        except Exception as err:  # noqa: BLE001 - handed to whoever asks for the result
            self._error = err

    def get(self, limit: float) -> T:
        """Return the result, or raise what the call raised; TimeoutError after `limit` seconds from now."""
        self._thread.join(limit)
        if self._error is not None:
            raise self._error
        if not self._value:
            raise TimeoutError(f"no answer within {limit:g} s")
        return self._value[0]


def map_together(call: Callable[[R], T], items: Iterable[R], *, at_once: int = 8, limit: float) -> list[T | None]:
    """Apply `call` to all items, some at a time, and return the results in their order.

    None stands for an item that had no answer within `limit` seconds or raised.
    """
    gate = threading.Semaphore(at_once)

    def guarded(item: R) -> T:
        with gate:
            return call(item)

    started = [Later(lambda item=item: guarded(item)) for item in items]  # type: ignore[misc]
    until = time.monotonic() + limit
    return [_value_or_none(one, max(0.0, until - time.monotonic())) for one in started]


def _value_or_none(one: Later[T], limit: float) -> T | None:
    """Return the result, or None when there is none."""
    try:
        return one.get(limit)
    except Exception:  # noqa: BLE001 - a probe that fails is an absent value
        return None
