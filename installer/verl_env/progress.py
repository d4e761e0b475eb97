"""Progress on stderr: a bar on a terminal, one line a step elsewhere, nothing when quiet."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from verl_env import output

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def steps(what: str, total: int, *, lines: bool = True) -> Iterator[Callable[[str], None]]:
    """Give a function that tells of one step done; use from one thread.

    Without `lines` the steps are many and alike: a bar alone, or a line a tenth of the way.
    """
    if output.quiet:
        yield lambda _line: None
    elif sys.stderr.isatty():
        yield from _bar(what, total, lines=lines)
    else:
        done = 0

        def step(line: str) -> None:
            nonlocal done
            done += 1
            if lines:
                output.note(f"  [{done}/{total}] {line}")
            elif done * 10 // total > (done - 1) * 10 // total:
                output.note(f"  {what} {done}/{total}")

        yield step


def _bar(what: str, total: int, *, lines: bool) -> Iterator[Callable[[str], None]]:
    """Draw a bar that stays below the lines of finished steps."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True, markup=False, highlight=False)
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(what, total=total)

        def step(line: str) -> None:
            if lines:
                progress.console.print(f"  {line}")
            progress.advance(task)

        yield step
