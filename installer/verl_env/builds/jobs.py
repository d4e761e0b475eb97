"""How many compilers run beside each other, so that the machine survives it. Pure."""

from __future__ import annotations

_SHARE = 0.85  # of the memory that is free: the rest of the machine goes on working
LEAST_SHARE = 0.04  # of all memory: below that, compilers are stopped before the kernel picks somebody
LEAST_BYTES = 600_000_000


def jobs_for(cores: int, available: int, job_bytes: int) -> int:
    """Return how many compilers fit: no more than there are cores, and than free memory holds; at least one."""
    return max(1, min(cores, int(available * _SHARE) // job_bytes))


def beside(jobs: int) -> str:
    """Say how many compilers work at a time."""
    return "one compiler at a time" if jobs == 1 else f"{jobs} compilers beside each other"


def floor_of(total: int) -> int:
    """Return how much memory, in bytes, must stay free while compilers run."""
    return max(LEAST_BYTES, int(total * LEAST_SHARE))
