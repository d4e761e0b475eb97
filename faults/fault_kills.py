"""SIGKILL at many instants of install, rollback, prune and lock: is what is in use whole, does a rerun end well.

Two ways to choose the instant. *Steps*: before the N-th change that verl-env itself makes to the file system, for every
N (inject/sitecustomize.py). *Moments*: at a random moment while a phase runs that uv does the work of, with the whole
tree of processes killed, or verl-env alone, whose uv then goes on as an orphan.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from fault_world import ROOT, World

from verl_env.environment.receipt import read_receipt
from verl_env.environment.removal import remove_environment
from verl_env.environment.standing import current_folder, step_back_to
from verl_env.environment.verify import verify_receipt

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

# What lasts; whatever verl-env does itself is killed at each of its steps.
UV_PHASES = ("fetch", "link", "compile", "manifest", "proof", "venv", "locate")
progress: list[Callable[[], None]] = []  # called after every kill
_POLL = 0.001  # seconds between two looks at what runs


@dataclass
class Outcome:
    """What came of the kills of one kind."""

    kills: int = 0
    left: Counter = field(default_factory=Counter)
    in_use: Counter = field(default_factory=Counter)
    reruns: Counter = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)


# ---- what runs, and how it is killed


def children(pid: int) -> list[int]:
    """Return the direct children of a process."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += [int(word) for word in (task / "children").read_text().split()]
    return found


def words_of(pid: int) -> list[str]:
    """Return a process's words."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def kill_tree(pid: int) -> None:
    """Kill a process and everything below it; stopped first, so that nothing new is started meanwhile."""
    waiting, every = [pid], []
    while waiting:
        one = waiting.pop()
        with contextlib.suppress(ProcessLookupError):
            os.kill(one, signal.SIGSTOP)
        every.append(one)
        waiting += children(one)
    for one in every:
        with contextlib.suppress(ProcessLookupError):
            os.kill(one, signal.SIGKILL)


def phase_of(pid: int, folder: Path) -> str:
    """Return what an installation is at: what its children do, or, without any, what is there."""
    for child in children(pid):
        if phase := _phase_of_child(words_of(child), folder):
            return phase
    if (folder / "exports.sh").exists() and not (folder / "verl-env-manifest.txt").exists():
        return "manifest"
    return "receipt" if folder.exists() else "choose"


def _phase_of_child(words: list[str], folder: Path) -> str | None:
    if any(word.endswith("bytecode_child.py") for word in words):
        return "compile"
    if "sync" in words:
        return "link" if any(folder.glob("lib/python*/site-packages/*.dist-info")) else "fetch"
    if any("import_module" in word for word in words):
        return "proof"
    return "locate" if "compile" in words else "venv" if "venv" in words else None


# ---- one kill, and what is seen after it


def look_after(world: World, outcome: Outcome, what: str) -> None:
    """See what was left and that the environment in use works; raises nothing, counts failures."""
    outcome.kills += 1
    there = [it.name for it in world.environments.iterdir()] if world.environments.is_dir() else []
    kinds = set()
    for name in there:
        if name.endswith((".lock", ".building", ".removing", ".tmp")):
            kinds.add(f"*{name[name.rindex('.') :]}")
        elif read_receipt(world.environments / name) is None:
            kinds.add("unfinished folder")
    outcome.left[", ".join(sorted(kinds)) or "nothing"] += 1
    now = current_folder()
    receipt = read_receipt(now) if now else None
    if receipt is None:
        outcome.failures.append(f"{what}: current leads to no complete environment")
        return
    outcome.in_use["new" if now == world.path("new") else "old"] += 1
    check_whole(outcome, what)


def check_whole(outcome: Outcome, what: str) -> None:
    """Check that the environment in use has every file, and imports."""
    now = current_folder()
    receipt = read_receipt(now)
    faults = verify_receipt(now, receipt, deep=False).faults
    if faults:
        outcome.failures.append(f"{what}: {now.name}: {faults[0].kind} {faults[0].path}")
    done = subprocess.run([now / "bin/python", "-c", "import verl"], env={}, capture_output=True, check=False)
    if done.returncode != 0:
        outcome.failures.append(f"{what}: {now.name}: {done.stderr.decode()[-200:]}")


def rerun(world: World, outcome: Outcome, what: str, *words: str, row: str = "new") -> None:
    """Run the command again, unharmed: it must end well, leave only complete environments, and the row in use."""
    done = world.tool(*words) if words else world.install(row)
    outcome.reruns[f"exit {done.code}"] += 1
    for call in progress:
        call()
    if done.code != 0:
        outcome.failures.append(f"{what}: the rerun exits {done.code}: {done.err[-400:]}")
        return
    if current_folder() != world.path(row):
        outcome.failures.append(f"{what}: after the rerun {current_folder()} is in use")
    rest = [
        it.name
        for it in world.environments.iterdir()
        if not (it.is_dir() and read_receipt(it)) and not it.name.endswith(".lock")
    ]
    if rest:
        outcome.failures.append(f"{what}: after the rerun {rest} is left")
    check_whole(outcome, what)


def reset(world: World) -> None:
    """Go back to the environment `old` and no `new`."""
    step_back_to(world.path("old"))
    remove_environment(world.path("new"))


# ---- campaigns


def count_steps(world: World, *words: str) -> list[str]:
    """Run a command to its end and return its steps, one line each."""
    log = world.folder / "steps.log"
    log.unlink(missing_ok=True)
    done = world.tool(*words, PYTHONPATH=_injected(), FAULT_LOG=str(log))
    if done.code != 0:
        raise SystemExit(f"{words} exits {done.code}: {done.err}")
    return log.read_text().splitlines()


def _injected() -> str:
    return os.pathsep.join([str(ROOT / "faults/inject"), str(ROOT / "installer")])


def kill_at_step(world: World, step: int, *words: str) -> bool:
    """Run a command that dies before a step; return whether it got that far."""
    child = world.tool.start(*words, PYTHONPATH=_injected(), FAULT_AT=str(step))
    done = world.tool.finish(child)
    return done.code == -signal.SIGKILL


INSTALL = ("install", "--cpu", "--row", "new")


def phase_of_step(steps: list[str]) -> list[str]:
    """Name the phase of each step of an installation by what was begun before it."""
    marks = (
        (" pip compile", "locate"), (".building", "venv"), (" pip sync", "after sync"), ("exports.sh", "exports"),
        ("verl-env-manifest", "manifest"), ("imports-", "proof"), ("verl-env-receipt", "receipt"),
        (".current.lock", "switch"),
    )  # fmt: skip
    phase, phases = "choose", []
    for step in steps:
        for mark, name in marks:
            if mark in step and not (name == "venv" and "remove" in step):
                phase = name
                break
        phases.append(phase)
    return phases


def install_steps(world: World, outcomes: dict[str, Outcome], every: int) -> None:
    """Kill an installation before every step (or each `every`-th) that verl-env takes itself."""
    steps = count_steps(world, *INSTALL)
    reset(world)
    phases = phase_of_step(steps)
    least = 1 if every > 1 else 20
    counts = Counter(phases)
    for at, phase in enumerate(phases, start=1):
        if (at % every) != 0:
            continue
        # A phase of few steps has each of them more than once, so that every phase is met often enough.
        for _ in range(max(1, -(-least // counts[phase])) if phase not in ("choose", "locate") else 1):
            outcome = outcomes.setdefault(f"install, step: {phase}", Outcome())
            what = f"step {at} ({steps[at - 1][:80]})"
            kill_at_step(world, at, *INSTALL)
            look_after(world, outcome, what)
            rerun(world, outcome, what)
            reset(world)


def install_moments(world: World, outcomes: dict[str, Outcome], each: int, rng: random.Random) -> None:
    """Kill an installation at random moments of every phase that takes a while."""
    for phase in UV_PHASES:
        for alone in (False, True):
            outcome = outcomes.setdefault(f"install, moment: {phase}{', verl-env alone' if alone else ''}", Outcome())
            moments(world, outcome, phase, each if not alone else max(1, each // 3), rng, alone=alone)
            print(f"{phase}: {outcome.kills} kills, {outcome.failures}", file=sys.stderr, flush=True)


def moments(world: World, outcome: Outcome, phase: str, wanted: int, rng: random.Random, *, alone: bool) -> None:
    """Kill an installation at random moments of one phase: its whole tree, or verl-env alone."""
    lasted, tries = 0.3, 0
    while outcome.kills < wanted and tries < 4 * wanted + 4:
        tries += 1
        if phase == "fetch":
            shutil.rmtree(world.cache, ignore_errors=True)
        world.server.pause = 0.03 if phase == "fetch" else 0.0
        lasted = _one_moment(world, outcome, phase, rng.random() * lasted, alone=alone) or lasted
        world.server.pause = 0.0
        rerun(world, outcome, f"moment in {phase}")
        reset(world)


def _one_moment(world: World, outcome: Outcome, phase: str, delay: float, *, alone: bool) -> float | None:
    """Kill once; return how long the phase was seen to last when it ended before the kill."""
    folder = world.path("new")
    child = world.tool.start(*INSTALL)
    began = None
    while child.poll() is None:
        now = phase_of(child.pid, folder)
        if began is None and now == phase:
            began = time.monotonic()
        if began is not None and time.monotonic() - began >= delay:
            if now == phase:
                if alone:
                    child.kill()
                else:
                    kill_tree(child.pid)
                break
            kill_tree(child.pid)
            child.communicate()
            return max(0.01, (time.monotonic() - began) * 0.7)
        time.sleep(_POLL)
    child.communicate()
    if child.returncode == -signal.SIGKILL:
        look_after(world, outcome, f"moment in {phase}")
    return None


def rollback_steps(world: World, outcomes: dict[str, Outcome], rounds: int) -> None:
    """Kill a rollback before each of its steps."""
    world.install("new")
    steps = count_steps(world, "rollback")
    world.install("new")
    outcome = outcomes.setdefault("rollback, step", Outcome())
    for _ in range(rounds):
        for at in range(1, len(steps) + 1):
            kill_at_step(world, at, "rollback")
            look_after(world, outcome, f"rollback step {at}")
            if current_folder() == world.path("old"):
                outcome.reruns["had moved"] += 1
            else:
                rerun(world, outcome, f"rollback step {at}", "rollback", row="old")
            world.install("new")
    reset(world)


def prune_steps(world: World, outcomes: dict[str, Outcome], each: int, rng: random.Random) -> None:
    """Kill a prune before some of its steps: the first and the last ones, and others among its many removals."""
    outcome = outcomes.setdefault("prune, step", Outcome())
    world.install("new")
    step_back_to(world.path("old"))
    steps = count_steps(world, "prune", "--force", world.names["new"])
    many = len(steps)
    chosen = sorted({*range(1, min(8, many)), *rng.sample(range(1, many + 1), min(each, many)), many - 1, many})
    for at in chosen:
        world.install("new")
        step_back_to(world.path("old"))
        kill_at_step(world, at, "prune", "--force", world.names["new"])
        look_after(world, outcome, f"prune step {at}")
        rerun(world, outcome, f"prune step {at}", "prune", "--force", row="old")
        if (world.path("new")).exists():
            remove_environment(world.path("new"))


def lock_steps(world: World, outcomes: dict[str, Outcome], each: int) -> None:
    """Kill a lock before its last steps: the file is the old one or the new one, never half."""
    target = world.folder / "pylock.toml"
    words = ("lock", "--cpu", "--row", "new", "-o", str(target))
    steps = count_steps(world, *words)
    good = target.read_bytes()
    outcome = outcomes.setdefault("lock, step", Outcome())
    for at in range(max(1, len(steps) - each + 1), len(steps) + 1):
        target.write_text("old")
        kill_at_step(world, at, *words)
        outcome.kills += 1
        left = [it.name for it in world.folder.glob(".pylock*")]
        outcome.left["a temporary file beside it" if left else "nothing"] += 1
        now = target.read_bytes()
        outcome.in_use["old" if now == b"old" else "new"] += 1
        if now not in (b"old", good):
            outcome.failures.append(f"lock step {at}: half a file")
        for name in left:
            (world.folder / name).unlink()
        done = world.tool(*words)
        outcome.reruns[f"exit {done.code}"] += 1
        if target.read_bytes() != good:
            outcome.failures.append(f"lock step {at}: the rerun wrote another file")
