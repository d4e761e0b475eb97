"""One file on its way to the nodes of a step: sbcast carries it in pieces, and each node puts them together."""

from __future__ import annotations

import hashlib
import os
import tempfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from verl_env import process
from verl_env.cluster.slurm_step import expand, slurm_environ
from verl_env.cluster.slurm_text import unsent
from verl_env.output import human_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from verl_env.cluster.slurm_step import Step

CHUNK = 256 * 1024 * 1024  # bytes of one sbcast
_BLOCK = 1 << 20
_CARRY_SECONDS = 1800.0  # for one piece to reach all nodes
_BLOCK_SECONDS = 60  # for one block of sbcast's to be written by a slow disk
_LOOK_SECONDS = 900.0  # for a node to hash what it has


@dataclass(kw_only=True)
class Sending:
    """A file, how much of it each node has, and the nodes that are lost to it."""

    path: Path
    to: str
    size: int
    sha256: str
    have: dict[str, int] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, path: Path, to: str) -> Sending:
        """Look at the file."""
        digest = hashlib.sha256()
        with open(path, "rb") as source:
            while block := source.read(_BLOCK):
                digest.update(block)
        return cls(path=path, to=to, size=path.stat().st_size, sha256=digest.hexdigest())

    def settled(self) -> set[str]:
        """Return the nodes that have all of it, and those that are lost."""
        return {name for name, count in self.have.items() if count == self.size} | self.lost.keys()

    def carry(self, step: Step, told: Callable[[str, int], None] | None) -> None:
        """Carry what the step's nodes lack, until all have all or one is lost: then the step is of no use to sbcast."""
        about = {"to": self.to, "size": self.size, "sha256": self.sha256}
        self._ask(step, "have", told, **about, chunk=CHUNK)
        while step.whole and step.names.isdisjoint(self.lost) and not step.names <= self.settled():
            offset = min(self.have[name] for name in step.names)
            piece = f"{self.to}.{self.sha256[:12]}.piece"
            why = self._broadcast(step, offset, piece)
            if why:
                free = step.ask("drop", _LOOK_SECONDS, piece=piece)
                self.lost |= {name: f"{text} ({_free(free.get(name))})" for name, text in why.items()}
                self.lost |= step.why_not(free.keys() | why.keys())
            else:
                self._ask(step, "take", told, **about, offset=offset, piece=piece)

    def _ask(self, step: Step, what: str, told: Callable[[str, int], None] | None, **asked: object) -> None:
        """Have the nodes do something about the file, and take their word on how much they have."""
        answers = step.ask(what, _LOOK_SECONDS, None, **asked)
        self.lost |= step.why_not(answers)
        for name, answer in answers.items():
            if "failed" in answer:
                self.lost[name] = answer["failed"]
            else:
                self.have[name] = answer["done"]
                if told:
                    told(name, answer["done"])

    def _broadcast(self, step: Step, offset: int, to: str) -> dict[str, str]:
        """Carry one piece; return the nodes that it did not reach, and why."""
        with open(self.path, "rb") as whole, tempfile.TemporaryFile(dir=self.path.parent) as piece:
            source: str | Path = self.path
            if self.size > CHUNK:  # a file without a name: sbcast knows no offsets
                whole.seek(offset)
                left = CHUNK
                while block := whole.read(min(_BLOCK, left)):
                    piece.write(block)
                    left -= len(block)
                piece.flush()
                source = f"/proc/{os.getpid()}/fd/{piece.fileno()}"
            words = ["sbcast", "--force", f"--jobid={step.address}", f"--timeout={_BLOCK_SECONDS}", source, to]
            done = process.run(words, env=slurm_environ(), timeout=_CARRY_SECONDS)
        if done.returncode == 0 and not done.timed_out:
            return {}
        named = {name: why for nodes, why in unsent(done.stderr).items() for name in expand(nodes)}
        if named:
            return named
        why = " ".join(done.tail(3)) or f"exit {done.returncode}"
        late = f"not carried within {_CARRY_SECONDS:.0f} s; " if done.timed_out else ""
        return dict.fromkeys(step.names, f"sbcast: {late}{why}")


def _free(answer: Mapping[str, Any] | None) -> str:
    """Say how much room a node had when sbcast could not write there: its own words are few."""
    return f"{human_bytes(answer['done'])} free there" if answer and "done" in answer else "no answer from it"
