"""Slurm as the engine: steps of the job that this runs in, and sbcast."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any, ClassVar

from verl_env.cluster.engine import Answer, Member
from verl_env.cluster.slurm_send import Sending
from verl_env.cluster.slurm_step import Step, ask_slurm, expand
from verl_env.cluster.slurm_text import value_of
from verl_env.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from pathlib import Path

_GRACE_SECONDS = 30.0  # beyond a request's own limit: the agent ends its calls by itself, and says so
_PROGRAMS = ("srun", "sbcast", "scontrol")


class SlurmEngine:
    """The nodes of the job whose allocation this runs in; raises EngineError when it runs in none."""

    name: ClassVar[str] = "slurm"

    def __init__(self) -> None:
        """Find the job."""
        self.job = os.environ.get("SLURM_JOB_ID", "")
        if not self.job:
            raise EngineError(
                "this runs in no allocation of Slurm's: SLURM_JOB_ID is not set",
                hint="`salloc --nodes=4 --no-kill`, then run this again in its shell",
            )
        lacking = [name for name in _PROGRAMS if shutil.which(name) is None]
        if lacking:
            raise EngineError(
                f"{', '.join(lacking)} not found on PATH", hint="run this where Slurm's programs are installed"
            )
        self._step: Step | None = None

    def members(self) -> tuple[Member, ...]:
        """Return the nodes of the job as it began; one that Slurm took out of it since is asked too, and named."""
        nodes = os.environ.get("SLURM_JOB_NODELIST") or value_of(self._job_record(), "NodeList")
        records = self._node_records(expand(nodes))
        return tuple(Member(name=it, address=value_of(records.get(it, ""), "NodeAddr")) for it in sorted(expand(nodes)))

    def ask(
        self,
        members: Sequence[Member],
        request: Mapping[str, Any],
        *,
        seconds: float,
        told: Callable[[str, str], None] | None = None,
    ) -> dict[str, Answer]:
        """Run the agent in a step with one task a node."""
        names = {it.name for it in members}
        given: dict[str, Answer] = {}
        while going := names - given.keys():
            step, why = self._join(going)
            if step:
                answers = step.ask("serve", seconds + _GRACE_SECONDS, told, request=dict(request))
                for name, it in answers.items():
                    given[name] = Answer(said=it["done"]) if "done" in it else Answer(error=it["failed"])
                why |= step.why_not(answers)
            given |= {name: Answer(error=text) for name, text in why.items()}
        return given

    def send(
        self,
        members: Sequence[Member],
        path: Path,
        to: str,
        *,
        told: Callable[[str, int], None] | None = None,
    ) -> dict[str, str]:
        """Carry the file in chunks by sbcast; each node compares the hash of the whole file."""
        sending = Sending.of(path, to)
        names = {it.name for it in members}
        while going := names - sending.settled():
            step, lost = self._join(going)
            sending.lost |= lost
            if step:
                sending.carry(step, told)
        return {name: sending.lost.get(name, "") for name in sorted(names)}

    def close(self) -> None:
        """End our step."""
        if self._step:
            self._step.close()
            self._step = None

    def _join(self, names: Collection[str]) -> tuple[Step | None, dict[str, str]]:
        """Return a step with the children on these nodes, less those on which none starts, and why."""
        if self._step and self._step.whole and self._step.names == set(names):
            return self._step, {}
        self.close()
        lost = self._absent(names)
        while rest := set(names) - lost.keys():
            step = self._step = Step(self.job, rest)
            if step.whole:
                return step, lost
            self.close()
            if not step.lost:
                raise EngineError(
                    f"Slurm starts no step in job {self.job}",
                    details=step.said,
                    hint=f"see `scontrol show job {self.job}` and `squeue --steps --jobs {self.job}`",
                )
            lost |= step.lost
        return None, lost

    def _absent(self, names: Collection[str]) -> dict[str, str]:
        """Return the nodes on which Slurm would start nothing, and why."""
        still = expand(value_of(self._job_record(), "NodeList"))
        records = self._node_records(names)
        lost = {}
        for name in names:
            state = value_of(records.get(name, ""), "State") or "not known"
            if name not in still:
                lost[name] = f"Slurm took it out of job {self.job} (the node is {state})"
            elif "DOWN" in state:
                lost[name] = f"the node is {state}"
        return lost

    def _job_record(self) -> str:
        """Return what Slurm says of the job; raises EngineError when it does not run."""
        done = ask_slurm("scontrol", "show", "job", self.job, "--oneliner")
        state = value_of(done.stdout, "JobState")
        if done.returncode != 0 or state != "RUNNING":
            raise EngineError(
                f"job {self.job} is {state}" if state else f"Slurm does not say what job {self.job} is",
                details=done.tail(),
                hint="take an allocation that outlives a node: `salloc --nodes=4 --no-kill`",
            )
        return done.stdout

    @staticmethod
    def _node_records(names: Collection[str]) -> dict[str, str]:
        """Return what Slurm says of nodes, by name."""
        said = ask_slurm("scontrol", "show", "node", ",".join(sorted(names)), "--oneliner").stdout
        return {value_of(line, "NodeName"): line for line in said.splitlines()}
