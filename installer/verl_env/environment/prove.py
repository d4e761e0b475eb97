"""An environment's proof, run in it as it will be used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verl_env import paths
from verl_env.environment.exports import Export, applied
from verl_env.errors import SmokeError
from verl_env.process import clean_environ
from verl_env.proof.runs import Job, Run, run_jobs
from verl_env.records import to_plain

if TYPE_CHECKING:
    from pathlib import Path


def prove(folder: Path, jobs: tuple[Job, ...], exports: tuple[Export, ...], *, seconds: float) -> tuple[Run, ...]:
    """Run proof jobs in an environment; raises SmokeError with each failed one's last line and log."""
    runs = run_jobs(
        folder / "bin" / "python",
        jobs,
        env=sealed_environ(exports),
        log_folder=paths.logs() / folder.name,
        seconds=seconds,
    )
    failed = [run for run in runs if not run.passed]
    if not failed:
        return runs
    error = SmokeError(
        f"{len(failed)} of {len(runs)} proofs failed in {folder.name}",
        details=tuple(line for run in failed for line in (f"{run.name}: {run.last_line}", f"  log: {run.log}")),
        hint="read the log of the first one",
    )
    error.data = {"environment": folder.name, "runs": [to_plain(run) for run in runs]}
    raise error


def sealed_environ(exports: tuple[Export, ...]) -> dict[str, str]:
    """Return the variables that programs of the environment run with."""
    return applied(exports, clean_environ())
