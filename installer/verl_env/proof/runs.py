"""Programs run inside an environment to show something of it: several at once, each with its limit and its log."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor, as_completed, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING

from verl_env import process
from verl_env.progress import steps

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_ENDING = 0.05  # seconds between two rounds of ending children


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One thing to show: its proof `level`, its `name`, and what to give to the environment's Python."""

    level: str
    name: str
    arguments: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One job's end: `seconds` of wall time, `last_line` what it said last, `log` the file with all of it."""

    level: str
    name: str
    passed: bool
    seconds: float
    last_line: str
    log: str


def run_jobs(
    python: Path, jobs: tuple[Job, ...], *, env: Mapping[str, str], log_folder: Path, seconds: float
) -> tuple[Run, ...]:
    """Run every job, as many at once as there are cores; return one run a job, in their order."""
    log_folder.mkdir(parents=True, exist_ok=True)
    runs: dict[Job, Run] = {}
    with (
        ThreadPoolExecutor(max_workers=max(1, min(len(jobs), _cores()))) as pool,
        steps("proof", len(jobs)) as step,
    ):
        waiting = {pool.submit(_run, python, job, env, log_folder, seconds): job for job in jobs}
        try:
            for done in as_completed(waiting):
                run = runs[waiting[done]] = done.result()
                step(f"{'passed' if run.passed else 'FAILED'} {run.name} ({run.seconds:.1f} s)")
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            # Again and again: a thread may have been about to start its child when the others were ended.
            while wait(waiting, timeout=_ENDING).not_done:
                process.end_all()
            raise
    return tuple(runs[job] for job in jobs)


def _cores() -> int:
    """Return how many cores this process may use (a container's or scheduler's allocation counts)."""
    return len(os.sched_getaffinity(0))


def _run(python: Path, job: Job, env: Mapping[str, str], log_folder: Path, seconds: float) -> Run:
    """Run one job from an empty place: a folder of the user's could hold a module of the same name."""
    log = log_folder / f"{job.level}-{job.name}.log"
    done = process.run([python, *job.arguments], env=env, cwd=log_folder, timeout=seconds, merge_into=log)
    text = log.read_text(encoding="utf-8", errors="replace").strip()
    last = text.splitlines()[-1] if text else f"exit code {done.returncode}"
    if done.timed_out:
        last = f"no end after {seconds:.0f} s"
    elif done.returncode < 0:
        last = f"ended by signal {-done.returncode}; last line: {last}"
    return Run(
        level=job.level,
        name=job.name,
        passed=done.returncode == 0,
        seconds=done.seconds,
        last_line=last,
        log=str(log),
    )
