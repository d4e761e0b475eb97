"""One step of a Slurm job: srun starts a child on every node, and all are spoken to in lines until it is closed."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verl_env import process
from verl_env.cluster import agent_child
from verl_env.cluster.slurm_text import Ear
from verl_env.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from verl_env.cluster.slurm_text import Heard

_CHILD = Path(__file__).parent / "inside" / "slurm_child.py"
_START_SECONDS = 180.0  # for a task to start on every node; a site's prolog may run first
_SILENT_SECONDS = 90.0  # without a sign of life, of which there is one every 10 s: the node is given up
_SETTLE_SECONDS = 2.0  # between the end of a task and its last words
_LEAVE_SECONDS = 15.0
_ASK_SECONDS = 60.0  # for an answer of Slurm's own programs
# One task a node beside whatever runs there. It shares the job's GPUs: a step without them may not even see them.
_OPTIONS = (
    "--overlap",
    "--ntasks-per-node=1",
    "--label",
    "--input=all",
    "--kill-on-bad-exit=0",
    "--wait=0",
    "--no-kill",
    "--mpi=none",
    "--cpu-bind=quiet,none",
    "--chdir=/",
)
_OURS = ("SLURM_", "SBATCH_", "SALLOC_", "SRUN_", "SBCAST_", "VERL_ENV_")  # of this node or shell, not of the tasks
_START = """
for python in python3 python3.12 python3.11 python3.10 /usr/bin/python3 /usr/local/bin/python3; do
    if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 8))' 2>/dev/null; then exec "$python" -I -B -c "$1"; fi
done
echo "no Python 3.8 or newer is on this node" >&2
exit 127
"""
# Says which node it is before anything is asked: what srun reads reaches no node until all of them are there.
_BOOT = """
import json, os, sys
hello = {"hello": os.environ["SLURMD_NODENAME"], "step": os.environ["SLURM_STEP_ID"]}
print("verl-env:." + json.dumps(hello), flush=True)
line = sys.stdin.readline()
if line:
    laid, child = json.loads(line), {"__name__": "slurm_child"}
    exec(compile(laid["child"], "slurm_child.py", "exec"), child)
    child["main"](laid["agent"])
"""


class Step:
    """The children on some nodes. `lost` are those that answer no more, and why; then the step is not `whole`."""

    def __init__(self, job: str, names: Collection[str]) -> None:
        """Start it, and wait until every node is there, or one is known not to come."""
        self.job, self.names = job, frozenset(names)
        self.lost: dict[str, str] = {}
        self._there: set[str] = set()
        self._step = ""
        self._ear = Ear()
        self._heard_at = dict.fromkeys(names, time.monotonic())
        self._exited: dict[str, tuple[str, float]] = {}
        self._told = False  # of the child; before that nothing on a node shows now and then that it is alive
        self._number = 0
        self._got: set[str] = set()  # the nodes that the last question reached
        chosen = (f"--jobid={job}", f"--nodes={len(names)}", f"--nodelist={','.join(sorted(names))}")
        words = ["srun", *chosen, *_OPTIONS, "sh", "-c", _START, "sh", _BOOT]
        self._dialogue = process.Dialogue(words, env=slurm_environ(), merge=True)
        try:
            self._call_roll()
        except BaseException:
            self._dialogue.end(0.0)
            raise

    @property
    def whole(self) -> bool:
        """Whether every node is there and answered so far."""
        return not self.lost and not self._dialogue.ended and self._there == self.names

    @property
    def said(self) -> tuple[str, ...]:
        """What srun itself said that is not about a node."""
        return tuple(self._ear.said)

    @property
    def address(self) -> str:
        """The step as Slurm's other programs name it."""
        return f"{self.job}.{self._step}"

    def ask(
        self, what: str, seconds: float, told: Callable[[str, str], None] | None = None, **asked: object
    ) -> dict[str, Any]:
        """Have all nodes do something; return what came of it, as `done` or `failed` of each that answered."""
        self._number += 1
        answers: dict[str, Any] = {}

        def take(name: str, message: Mapping[str, Any]) -> None:
            if message.get("number") != self._number:
                return
            if "got" in message:
                self._got.add(name)
            elif "told" not in message:
                answers[name] = message
            elif told:
                told(name, message["told"])

        self._got = set()
        self._heard_at = dict.fromkeys(self.names, time.monotonic())
        self._dialogue.tell(json.dumps({"do": what, "number": self._number, **asked}))
        for name in self._listen(lambda: self.names - answers.keys() - self._beyond(), seconds, take):
            self._lose(name, f"no answer within {seconds:.0f} s")
        return answers

    def why_not(self, answers: Collection[str]) -> dict[str, str]:
        """Return why nodes that are not among the answers gave none; those that can be asked again are left out."""
        ended = " ".join(["Slurm's step ended", *self.said])
        again = self._beyond() - self.lost.keys()
        return {name: self.lost.get(name, ended) for name in self.names - set(answers) - again}

    def _beyond(self) -> set[str]:
        """Return the nodes of which nothing will come: the lost, and with them those that the question did not reach.

        What srun holds for a dead node it holds back from all others, too, once that is about 1 MB.
        """
        return self.lost.keys() | (self.names - self._got if self.lost else set())

    def close(self) -> None:
        """End what runs on the nodes, and the step."""
        left: set[str] = set()
        if self._told and not self._dialogue.ended:
            self._heard_at = dict.fromkeys(self.names, time.monotonic())
            self._dialogue.tell(json.dumps({"do": "leave"}))

            def take(name: str, message: Mapping[str, Any]) -> None:
                if "left" in message:
                    left.add(name)

            self._listen(lambda: self.names - left - self.lost.keys(), _LEAVE_SECONDS, take)
        in_order = self._dialogue.end(_LEAVE_SECONDS if left == self.names else 0.0)
        if self._step and not in_order:
            ask_slurm("scancel", self.address)

    def _call_roll(self) -> None:
        def take(name: str, message: Mapping[str, Any]) -> None:
            if "hello" in message:
                self._there.add(name)
                self._step = message["step"]

        for name in self._listen(lambda: self.names - self._there - self.lost.keys(), _START_SECONDS, take):
            self._lose(name, " ".join([f"no task began within {_START_SECONDS:.0f} s", *self.said]))
        if self.whole:
            sources = {"child": _CHILD.read_text(encoding="utf-8"), "agent": Path(agent_child.__file__).read_text()}
            self._dialogue.tell(json.dumps(sources))
            self._told = True

    def _listen(
        self,
        waiting: Callable[[], Collection[str]],
        seconds: float,
        take: Callable[[str, Mapping[str, Any]], None],
    ) -> Collection[str]:
        """Hear the nodes until none is waited for; who ends or falls silent is lost. Return those that are late."""
        until = time.monotonic() + seconds
        while names := waiting():
            line = self._dialogue.hear(1.0)
            heard = self._ear.hear(line) if line else None
            if heard:
                self._note(heard, take)
            now = time.monotonic()
            for name in names:
                why, at = self._exited.get(name, ("", now))
                if why and (now - at > _SETTLE_SECONDS or self._dialogue.ended):
                    self._lose(name, why)
                elif self._told and now - self._heard_at[name] > _SILENT_SECONDS:
                    self._lose(name, f"no sign of life for {_SILENT_SECONDS:.0f} s")
            if self._dialogue.ended:
                break
            if now > until:
                return waiting()
        return ()

    def _note(self, heard: Heard, take: Callable[[str, Mapping[str, Any]], None]) -> None:
        """Take what was heard of some nodes."""
        for name in expand(heard.nodes):
            self._heard_at[name] = time.monotonic()
            if heard.message:
                take(name, heard.message)
            elif heard.exited:
                self._exited.setdefault(name, (heard.why, time.monotonic()))
            else:
                self._lose(name, heard.why)

    def _lose(self, name: str, why: str) -> None:
        self.lost.setdefault(name, why)


def slurm_environ() -> dict[str, str]:
    """Return the variables for Slurm's programs: options that a shell or an outer step left do not leak into ours."""
    every = process.clean_environ()
    return {name: value for name, value in every.items() if name == "SLURM_CONF" or not name.startswith(_OURS)}


def ask_slurm(*words: str) -> process.Completed:
    """Run one of Slurm's programs; raises EngineError when it is not there."""
    try:
        return process.run(list(words), env=slurm_environ(), timeout=_ASK_SECONDS)
    except FileNotFoundError:
        raise EngineError(
            f"`{words[0]}` is not on PATH", hint="run this where Slurm's programs are installed"
        ) from None


def expand(nodes: str) -> tuple[str, ...]:
    """Return the names of Slurm's list of nodes, such as `gpu[01-03,7]`."""
    if not nodes or not set(nodes) & set("[,"):
        return (nodes,) if nodes else ()
    return tuple(ask_slurm("scontrol", "show", "hostnames", nodes).stdout.split())
