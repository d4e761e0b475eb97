"""The `imports` level: each smoke module imported in a process of its own, several at once, each with its limit."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import TYPE_CHECKING

from verl_env import process
from verl_env.progress import steps

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

# Vendored packages print warnings at import; what counts is that the module is there afterwards.
_PROGRAM = "import importlib, sys; importlib.import_module(sys.argv[1])"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportRun:
    """One import: `seconds` of wall time, `last_line` what it said last when it failed, `log` all of it."""

    module: str
    passed: bool
    seconds: float
    last_line: str
    log: str


def run_imports(
    python: Path, modules: tuple[str, ...], *, env: Mapping[str, str], log_folder: Path, seconds: float
) -> tuple[ImportRun, ...]:
    """Import every module, as many at once as there are cores; return one run a module, in their order."""
    log_folder.mkdir(parents=True, exist_ok=True)
    runs: dict[str, ImportRun] = {}
    with (
        ThreadPoolExecutor(max_workers=max(1, min(len(modules), _cores()))) as pool,
        steps("imports", len(modules)) as step,
    ):
        waiting = {
            pool.submit(_import, python, module, env, log_folder, seconds): module for module in modules
        }
        try:
            for done in as_completed(waiting):
                run = done.result()
                runs[run.module] = run
                step(f"{'passed' if run.passed else 'FAILED'} {run.module} ({run.seconds:.1f} s)")
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            process.end_all()
            raise
    return tuple(runs[module] for module in modules)


def _cores() -> int:
    """Return how many cores this process may use (a container's or scheduler's allocation counts)."""
    return len(os.sched_getaffinity(0))


def _import(python: Path, module: str, env: Mapping[str, str], log_folder: Path, seconds: float) -> ImportRun:
    """Run one import, from an empty place: a folder of the user's could hold a module of the same name."""
    log = log_folder / f"import-{module}.log"
    done = process.run(
        [python, "-P", "-c", _PROGRAM, module]
        if _knows_safe_path(python)
        else [python, "-c", _PROGRAM, module],
        env=env,
        cwd=log_folder,
        timeout=seconds,
        merge_into=log,
    )
    text = log.read_text(encoding="utf-8", errors="replace").strip()
    last = text.splitlines()[-1] if text else f"exit code {done.returncode}"
    if done.timed_out:
        last = f"no end after {seconds:.0f} s"
    elif done.returncode < 0:
        last = f"ended by signal {-done.returncode}; last line: {last}"
    return ImportRun(
        module=module, passed=done.returncode == 0, seconds=done.seconds, last_line=last, log=str(log)
    )


def _knows_safe_path(python: Path) -> bool:
    """Python 3.11 brought -P, which keeps the working folder off sys.path."""
    return not (python.parent.parent / "lib" / "python3.10").is_dir()
