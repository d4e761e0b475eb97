"""What `capture` finds out on its way from a list or an environment to a lock."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from verl_env.capture.compare import Difference
from verl_env.capture.edits import Patch
from verl_env.capture.environment import Environment
from verl_env.capture.listing import Listing
from verl_env.capture.on_index import Held
from verl_env.capture.plan import Plan
from verl_env.capture.unavailable import Unavailable
from verl_env.capture.understood import Understood
from verl_env.indexes import Indexes
from verl_env.lock.captured import GitPackage
from verl_env.lock.coherence import Incoherence
from verl_env.lock.lockfile import Lock
from verl_env.matrix.matrix import Entry, Matrix
from verl_env.matrix.pins import Pin, Pins


@dataclass(slots=True, kw_only=True)
class Capture:
    """Everything that is found out on the way, for the answer."""

    listing: Listing
    matrix: Matrix
    indexes: Indexes
    understood: Understood
    python: str
    arch: str
    environment: Environment | None = None
    near: tuple[Entry, Pins] | None = None
    differences: tuple[Difference, ...] = ()
    plan: Plan | None = None
    held: tuple[Held, ...] = ()
    git: tuple[GitPackage, ...] = ()
    build: tuple[Pin, ...] = ()
    unavailable: tuple[Unavailable, ...] = ()
    doubts: dict[str, str] = field(default_factory=dict)
    incoherent: tuple[Incoherence, ...] = ()
    patch: Patch | None = None
    lock: Lock | None = None
    written: Path | None = None
