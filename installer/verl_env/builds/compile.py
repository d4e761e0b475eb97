"""Compilers at work: started, watched, stopped before memory runs out, and started again with fewer beside each other.

What one attempt compiled, the next does not compile again (ninja's log says what is whole): stopping costs little.
"""

from __future__ import annotations

import os
import shutil
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from verl_env import output, process, uv
from verl_env.builds.failing import BuildError
from verl_env.builds.jobs import beside, floor_of
from verl_env.builds.log import DISK, MEMORY, Failure, Step, failure_in, steps_in
from verl_env.builds.memory import read_memory
from verl_env.builds.session import end_session, session_bytes
from verl_env.node.host import Host
from verl_env.progress import steps

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from verl_env.builds.workplace import Progress, Workplace

_PROGRAM = Path(__file__).with_name("inside") / "build_wheel.py"
_PAUSE = 0.5  # seconds between two looks
_LEAST_DISK = 200_000_000  # bytes: the next object file would not fit
_HINTS = {
    MEMORY: "run it again with fewer compilers beside each other: --jobs 1; what is compiled is kept",
    DISK: "free some space, or name another folder: --home DIR; what is compiled is kept",
}
_AGAIN = "mend that, and run it again: what is compiled is kept"


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What is compiled, by which Python, with which variables; `log` gets every word."""

    place: Workplace
    python: Path
    variables: Mapping[str, str]
    log: Path
    jobs: int


@dataclass(slots=True, kw_only=True)
class _Watched:
    """One attempt while it runs: where its log begins, how many of its steps are done, and the most memory held."""

    start: int
    read: int
    done: int = 0
    total: int = 0
    peak: int = 0
    stopped: str = ""


def compile_wheel(work: Work, progress: Progress) -> tuple[Path, Progress, int]:
    """Compile to the end; return the wheel, what it took, and how many compilers ran beside each other at last.

    Raises BuildError with what really went wrong, last line last.
    """
    jobs = work.jobs
    while True:
        code, watched, progress = _attempt(work, jobs, progress)
        if code == 0 and not watched.stopped:
            return _the_wheel(work), progress, jobs
        failure = _failure(work, watched)
        if failure.cause != MEMORY or jobs == 1:
            raise _error(work, failure, watched)
        jobs = max(1, jobs // 2)
        output.warn(f"too little memory ({failure.lines[-1]}): going on with {beside(jobs)}")
        progress = replace(progress, attempts=progress.attempts + 1)


def _attempt(work: Work, jobs: int, before: Progress) -> tuple[int, _Watched, Progress]:
    """Run the back end once; whatever ends us, ends it and every compiler. What it took is written down as it goes."""
    backend, folders = work.place.backend()
    argv: list[str | Path] = [work.python, _PROGRAM, backend, work.place.out, *folders]
    variables = dict(work.variables) | {"MAX_JOBS": str(jobs), "TMPDIR": str(work.place.temporary)}
    work.log.parent.mkdir(parents=True, exist_ok=True)
    start = work.log.stat().st_size if work.log.exists() else 0
    child = process.start(
        argv,
        env=variables,
        cwd=work.place.source,
        merge_into=work.log,
        append=True,
        pass_fds=tuple(uv.held_locks),
    )
    watched = _Watched(start=start, read=start)
    try:
        with ExitStack() as stack:
            _watch(work, child, watched, stack, before)
    finally:
        end_session(child.child.pid)
        code = child.end()
        progress = _kept(work, before, watched, child.seconds)
    return code, watched, progress


def _kept(work: Work, before: Progress, watched: _Watched, seconds: float) -> Progress:
    """Write down what all attempts took so far: after a kill, the record still says it."""
    progress = replace(
        before,
        seconds=before.seconds + seconds,
        compiled=before.compiled + watched.done,
        peak=max(before.peak, watched.peak),
    )
    work.place.keep(progress)
    return progress


def _watch(work: Work, child: process.Running, watched: _Watched, stack: ExitStack, before: Progress) -> None:
    """Look at the child until it ends: its steps, its memory, and the room that is left."""
    host = Host()
    floor = floor_of(read_memory(host).total)
    step: Callable[[str], None] | None = None
    while True:
        ended = child.poll() is not None
        watched.peak = max(watched.peak, 0 if ended else session_bytes(child.child.pid))
        for it in _new_steps(work, watched):
            step = step or stack.enter_context(steps("compiling", it.total))
            watched.done, watched.total = it.done, it.total
            step(_line(it, child.seconds, watched.peak))
            _kept(work, before, watched, child.seconds)
        if ended:
            return
        free = read_memory(host).available
        if free < floor:
            watched.stopped = f"{output.human_bytes(free)} were free, and {output.human_bytes(floor)} must be"
            return
        if shutil.disk_usage(work.place.folder).free < _LEAST_DISK:
            watched.stopped = "No space left on device"
            return
        time.sleep(_PAUSE)


def _new_steps(work: Work, watched: _Watched) -> tuple[Step, ...]:
    """Return the steps in what the log got since the last look, whole lines only."""
    with work.log.open("rb") as stream:
        stream.seek(watched.read)
        text = stream.read()
    whole = text.rfind(b"\n") + 1
    watched.read += whole
    return steps_in(text[:whole].decode(errors="replace"))


def _line(it: Step, seconds: float, peak: int) -> str:
    """Say one step, with the time that is left if the others take as long as those before."""
    left = f", about {_duration(seconds / it.done * (it.total - it.done))} left" if it.done < it.total else ""
    return f"{it.what} after {_duration(seconds)}{left}; {output.human_bytes(peak)} of memory at most"


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    if minutes < 2:  # noqa: PLR2004 - below that, seconds say more
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 120 else f"{minutes / 60:.1f} h"  # noqa: PLR2004 - two hours


def _failure(work: Work, watched: _Watched) -> Failure:
    """Return why an attempt failed: what we stopped it for, else what its log says."""
    if watched.stopped:
        cause = DISK if "space" in watched.stopped else MEMORY
        return Failure(cause=cause, lines=(watched.stopped,))
    with work.log.open("rb") as stream:
        stream.seek(watched.start)
        return failure_in(stream.read().decode(errors="replace"))


def _error(work: Work, failure: Failure, watched: _Watched) -> BuildError:
    done = f" after {watched.done} of {watched.total} files" if watched.total else ""
    return BuildError(
        f"compiling {work.place.source.name} failed{done}",
        details=(f"log: {work.log}", *failure.lines),
        hint=_HINTS.get(failure.cause, _AGAIN),
    )


def _the_wheel(work: Work) -> Path:
    """Return the one wheel that the back end left."""
    found = sorted(work.place.out.glob("*.whl"))
    if len(found) != 1:
        names = ", ".join(os.listdir(work.place.out)) or "nothing"
        raise BuildError("the back end left no wheel", details=(f"it left {names}", f"log: {work.log}"))
    return found[0]
