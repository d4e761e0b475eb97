"""Progress of many nodes on stderr: a live table on a terminal, lines elsewhere, nothing when quiet."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

from verl_env import output, process
from verl_env.output import human_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from verl_env.cluster.course import Course

_TENTHS = 10
_WIDTH = 72  # of what a node said last


@contextlib.contextmanager
def progress_shown() -> Iterator[Progress]:
    """Open a live table on a terminal, and close it when the report follows."""
    if output.quiet or not sys.stderr.isatty():
        yield Progress()
        return
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True, markup=False, highlight=False)
    with Live(console=console, refresh_per_second=4, transient=True) as live:
        yield Progress(live)


class Progress:
    """What is told while nodes work; from one thread."""

    def __init__(self, live: Any = None) -> None:
        """Begin with nothing shown; `live` is rich's, on a terminal."""
        self._courses: Sequence[Course] = ()
        self._said: dict[str, str] = {}
        self._shown: dict[str, tuple[str, str]] = {}
        self._step: dict[str, int] = {}
        self._live = live

    def show(self, courses: Sequence[Course]) -> None:
        """Say which stage each node is at; a line for each node whose stage changed, where there is no table."""
        self._courses = courses
        if self._live:
            self._live.update(self._table())
            return
        for it in courses:
            now = (it.stage, it.why)
            if self._shown.get(it.name) != now:
                self._shown[it.name] = now
                output.note(f"  {it.name}: {it.stage}{f' failed: {it.why}' if it.why else ''}")

    def told(self, name: str, line: str) -> None:
        """Take a line that verl-env wrote on a node."""
        self._said[name] = line.strip()
        if self._live:
            self._live.update(self._table())
        elif process.verbose:
            output.note(f"  {name}| {line}")

    def moved(self, name: str, count: int, size: int) -> None:
        """Take how many of the bundle's bytes a node has."""
        self._said[name] = f"{human_bytes(count)} of {human_bytes(size)}"
        if self._live:
            self._live.update(self._table())
            return
        tenth = count * _TENTHS // max(1, size)
        if tenth != self._step.get(name):
            self._step[name] = tenth
            output.note(f"  {name}: {self._said[name]}")

    def _table(self) -> Any:
        """Return the nodes as a table of rich's."""
        from rich.table import Table

        table = Table("node", "stage", "", box=None, pad_edge=False)
        for it in self._courses:
            stage = f"{it.stage} failed" if it.why else it.stage
            table.add_row(it.name, stage, (it.why or self._said.get(it.name, ""))[:_WIDTH])
        return table
