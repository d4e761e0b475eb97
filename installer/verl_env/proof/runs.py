"""Programs run inside an environment to show something of it: several at once, each with its limit and its log."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from verl_env import process
from verl_env.progress import steps

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_PAUSE = 0.02  # seconds between two looks at the children
_SKIPPED = 77  # what inside/run_check.py ends with when there is nothing to show


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One thing to show: its proof `level`, its `name`, and what to give to the environment's Python."""

    level: str
    name: str
    arguments: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One job's end: `seconds` of wall time, `last_line` what it said last, `log` the file with all of it.

    `skipped`: it passed because there was nothing to show, and `last_line` says why.
    """

    level: str
    name: str
    passed: bool
    seconds: float
    last_line: str
    log: str
    skipped: bool = False

    @property
    def word(self) -> str:
        """How it ended, in a word."""
        return "skipped" if self.skipped else "passed" if self.passed else "FAILED"


def run_jobs(
    python: Path,
    jobs: tuple[Job, ...],
    *,
    env: Mapping[str, str],
    log_folder: Path,
    seconds: float,
    at_once: int | None = None,
) -> tuple[Run, ...]:
    """Run every job, `at_once` beside each other (default: as many as there are cores); return a run each, in order.

    One thread starts and ends them all: whenever it is interrupted, it knows every child that lives.
    """
    log_folder.mkdir(parents=True, exist_ok=True)
    waiting, runs = list(reversed(jobs)), dict[Job, Run]()
    running: dict[Job, process.Running] = {}
    with steps("proof", len(jobs)) as step:
        try:
            while waiting or running:
                while waiting and len(running) < (at_once or _cores()):
                    job = waiting.pop()
                    running[job] = _start(python, job, env, log_folder)
                time.sleep(_PAUSE)
                for job, child in tuple(running.items()):
                    if run := _ended(job, child, log_folder, seconds):
                        del running[job]
                        runs[job] = run
                        step(f"{run.word} {run.name} ({run.seconds:.1f} s)")
        finally:
            for child in running.values():
                child.end()
    return tuple(runs[job] for job in jobs)


def _cores() -> int:
    """Return how many cores this process may use (a container's or scheduler's allocation counts)."""
    return len(os.sched_getaffinity(0))


def _log(job: Job, log_folder: Path) -> Path:
    return log_folder / f"{job.level}-{job.name}.log"


def _start(python: Path, job: Job, env: Mapping[str, str], log_folder: Path) -> process.Running:
    """Start a job from an empty place: a folder of the user's could hold a module of the same name."""
    return process.start([python, *job.arguments], env=env, cwd=log_folder, merge_into=_log(job, log_folder))


def _ended(job: Job, child: process.Running, log_folder: Path, seconds: float) -> Run | None:
    """Return a job's end, or None while it runs; after its limit it is ended, with its children."""
    code = child.poll()
    if code is None and child.seconds < seconds:
        return None
    timed_out = code is None
    took = child.seconds
    code = child.end() if code is None else code
    log = _log(job, log_folder)
    text = log.read_text(encoding="utf-8", errors="replace").strip()
    last = text.splitlines()[-1] if text else f"exit code {code}"
    if timed_out:
        last = f"no end after {seconds:.0f} s"
    elif code < 0:
        last = f"ended by signal {-code}; last line: {last}"
    return Run(
        level=job.level,
        name=job.name,
        passed=code in (0, _SKIPPED),
        seconds=took,
        last_line=last,
        log=str(log),
        skipped=code == _SKIPPED,
    )
