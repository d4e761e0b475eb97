"""The stages of `cluster install` on all nodes: preflight, carry, build and prove, then switch."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from verl_env.cluster.course import (
    BUILD,
    CARRY,
    PREFLIGHT,
    PROVED,
    SWITCH,
    SWITCHED,
    Course,
    data_in,
    failure_in,
    stray_pythons,
)
from verl_env.lock.lockfile import render_lock
from verl_env.output import human_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from verl_env.cluster.facts import Seen
    from verl_env.commands.cluster_nodes import Nodes
    from verl_env.commands.cluster_progress import Progress
    from verl_env.lock.lockfile import Lock

CHECK_SECONDS = 600.0  # for one node to look at its room, or at the files of an environment
_DONE_WITH = (0, 10)  # exit codes after which a node's bundle is of no more use: installed, or damaged


@dataclass(frozen=True, slots=True, kw_only=True)
class How:
    """How nodes build: the words for `install`, the seconds that one node may take, whether Pythons are brought."""

    words: tuple[str, ...]
    seconds: float
    with_python: bool = False
    space_check: bool = True


@dataclass(slots=True, kw_only=True)
class Rollout:
    """One lock on its way to many nodes; a node that fails stops where it is, and the others go on."""

    nodes: Nodes
    lock: Lock
    how: How
    progress: Progress
    courses: tuple[Course, ...] = field(default=())

    def well(self, *, there: bool | None = None) -> tuple[Course, ...]:
        """Return the nodes that go on; `there`: only those on which the environment stood, or did not stand."""
        return tuple(it for it in self.courses if not it.why and there in (None, it.there))

    def begin(self, every: Sequence[Seen]) -> None:
        """Take what every node said of itself; it is there where a complete environment has the lock's digest."""
        digest = self.lock.table.digest
        self.courses = tuple(
            Course(seen=it, why=it.error, there=digest in it.environments, environment=it.environments.get(digest, ""))
            for it in every
        )
        for it in self.courses:
            if not it.why and it.seen.sharing:
                it.fail(
                    PREFLIGHT, f"its home is that of {', '.join(it.seen.sharing)} too: nodes would build in one place"
                )
        self.progress.show(self.courses)

    def preflight(self) -> None:
        """Have each node look whether it could build; where the environment stands, whether its files are there."""
        strays = {} if self.how.with_python else stray_pythons([it.seen for it in self.well()], self.lock.table.python)
        for it in self.well(there=False):
            if why := strays.get(it.name) or self._no_room(it.seen):
                it.fail(PREFLIGHT, why)
        text = {self.lock.file_name: render_lock(replace(self.lock, urls=self._places()))}
        words = ["install", self.lock.file_name, "--dry-run", "--json"]
        checks = () if self.how.space_check else ("--no-space-check",)
        self._each(self.well(there=False), PREFLIGHT, [{"words": [*words, *checks]}], CHECK_SECONDS, text)
        by_name: dict[str, list[Course]] = {}
        for it in self.well(there=True):
            by_name.setdefault(it.environment, []).append(it)
        for name, same in by_name.items():
            self._each(tuple(same), PREFLIGHT, [{"words": ["verify", name, "--json"]}], CHECK_SECONDS)

    def _places(self) -> dict[str, str]:
        return {pin.file: self.lock.urls.get(pin.file) or pin.file for pin in self.lock.pins}

    def _no_room(self, seen: Seen) -> str:
        """Say why the bundle and its unpacked wheels would not fit beside the environment."""
        table, folder = self.lock.table, seen.folder
        need = 2 * table.download_bytes + table.installed_bytes
        if not self.how.space_check or folder is None or folder.free_bytes is None or folder.free_bytes >= need:
            return ""
        free = human_bytes(folder.free_bytes)
        return f"no space: {free} free in {folder.path}, and {human_bytes(need)} are needed while it is built"

    def carry(self, bundle: Path, size: int) -> None:
        """Bring the bundle to every node that builds."""
        going = {it.name: it for it in self.well(there=False)}
        for it in going.values():
            it.reach(CARRY)

        def told(name: str, count: int) -> None:
            going[name].carried_bytes = count
            self.progress.moved(name, count, size)

        sent = self.nodes.engine.send([it.member for it in going.values()], bundle, str(bundle), told=told)
        for name, why in sent.items():
            if why:
                going[name].fail(CARRY, why)
        self.progress.show(self.courses)

    def build(self, bundle: Path) -> None:
        """Build and prove everywhere at the same time; what is in use stays in use."""
        call: dict[str, object] = {
            "bundle": str(bundle),
            "words": list(self.how.words),
            "remove_after": list(_DONE_WITH),
        }
        self._each(self.well(there=False), BUILD, [call], self.how.seconds)
        for it in self.well():
            it.reach(PROVED)
        self.progress.show(self.courses)

    def switch(self) -> None:
        """Make it current on every node that proved it: the second phase."""
        by_name: dict[str, list[Course]] = {}
        for it in self.well():
            by_name.setdefault(it.environment, []).append(it)
        for name, same in by_name.items():
            self._each(tuple(same), SWITCH, [{"words": ["use", name, "--json"]}], CHECK_SECONDS)
        for it in self.well():
            it.reach(SWITCHED)
        self.progress.show(self.courses)

    def _each(
        self,
        courses: Sequence[Course],
        stage: str,
        calls: Sequence[Mapping[str, object]],
        seconds: float,
        files: Mapping[str, str] | None = None,
    ) -> None:
        """Run calls on some nodes at once, and stop those on which they fail."""
        if not courses:
            return
        for it in courses:
            it.reach(stage)
        self.progress.show(self.courses)
        members = [it.member for it in courses]
        answers = self.nodes.ask(members, calls, seconds=seconds, files=files, told=self.progress.told)
        for it in courses:
            answer = answers[it.name]
            if why := failure_in(answer):
                it.fail(stage, why)
            elif stage == BUILD:
                receipt = data_in(answer)["receipt"]
                it.environment, it.proof, it.device = receipt["name"], receipt["level"], receipt["device"]
        self.progress.show(self.courses)
