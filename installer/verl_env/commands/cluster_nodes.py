"""What `cluster check` and `cluster install` share: the engine, verl-env on every node, and what the nodes say."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verl_env import cluster, output, paths
from verl_env.cluster.agent_child import NODE_WORD, tool_path
from verl_env.cluster.facts import Seen, read_seen
from verl_env.cluster.links import FIRST_PORT, PORTS, Link, plan_of, read_link, rounds_of
from verl_env.cluster.tool import Archive, pack_tool
from verl_env.errors import EngineError, UsageError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from verl_env.cluster.engine import Answer, Engine, Member

LOOK_SECONDS = 180.0  # for one node to say what it is
LINK_SECONDS = 240.0  # for two nodes to meet and to reduce
_PROBE = Path(cluster.__file__).parent / "inside" / "allreduce_child.py"


@dataclass(slots=True, kw_only=True)
class Nodes:
    """The cluster: its engine, its nodes, and what every request carries."""

    engine: Engine
    members: tuple[Member, ...]
    home: str
    archive: Archive
    mark: str = field(default_factory=lambda: secrets.token_hex(8))
    lost: dict[str, str] = field(default_factory=dict)  # nodes that could not be given verl-env, and why

    def ask(
        self,
        members: Sequence[Member],
        calls: Sequence[Mapping[str, Any]],
        *,
        seconds: float,
        files: Mapping[str, str] | None = None,
        told: Callable[[str, str], None] | None = None,
    ) -> dict[str, Answer]:
        """Run calls of verl-env on nodes, all at the same time."""
        request = {
            "home": self.home,
            "tool": self.archive.digest,
            "oldest": list(self.archive.oldest),
            "mark": self.mark,
            "calls": [{"seconds": seconds, **call} for call in calls],
            "files": dict(files or {}),
        }
        return self.engine.ask(members, request, seconds=seconds, told=told)

    def bring_tool(self) -> None:
        """Send verl-env to every node; those that did not get it are lost, with the reason."""
        with tempfile.TemporaryDirectory(prefix="verl-env-") as name:
            packed = Path(name) / "verl-env.zip"
            packed.write_bytes(self.archive.content)
            sent = self.engine.send(self.members, packed, tool_path(self.home, self.archive.digest))
        self.lost = {name: why for name, why in sent.items() if why}

    def links(self, members: Sequence[Member]) -> tuple[Link, ...]:
        """All-reduce between pairs of nodes, under the environment that is in use on each."""
        port = FIRST_PORT + int(self.mark, 16) % PORTS
        found: list[Link] = []
        for pairs in rounds_of(members):
            files = {
                "allreduce_child.py": _PROBE.read_text(encoding="utf-8"),
                "plan.json": json.dumps(plan_of(pairs, port)),
            }
            words = ["run", "--", "python", "allreduce_child.py", "plan.json", NODE_WORD]
            both = [it for pair in pairs for it in pair]
            answers = self.ask(both, [{"words": words}], seconds=LINK_SECONDS, files=files)
            found += [read_link(pair, answers) for pair in pairs]
        return tuple(found)

    def look(self) -> tuple[Seen, ...]:
        """Ask every node what it is; twice, as only then all marks are there by which a shared home is known."""
        self.bring_tool()
        here = [it for it in self.members if it.name not in self.lost]
        self.ask(here, (), seconds=LOOK_SECONDS)
        answers = self.ask(here, ({"words": ["detect", "--json"]}, {"words": ["list", "--json"]}), seconds=LOOK_SECONDS)
        return tuple(
            Seen(member=it, error=self.lost[it.name]) if it.name in self.lost else read_seen(it, answers[it.name])
            for it in self.members
        )


def add_cluster_arguments(parser: argparse.ArgumentParser) -> None:
    """Add which engine, and how it is reached."""
    group = parser.add_argument_group("cluster")
    group.add_argument(
        "--on",
        metavar="ENGINE",
        help="`slurm`, `ray` or `ray:HOST:PORT` (default: slurm within an allocation of its, else ray)",
    )
    group.add_argument("--ray-python", metavar="PYTHON", help="a Python with the cluster's Ray (or its environment)")


@contextlib.contextmanager
def cluster_of(args: argparse.Namespace) -> Iterator[Nodes]:
    """Join the cluster that was named, and leave it again; raises EngineError, or UsageError for unknown words."""
    engine = _engine(args.on, args.ray_python)
    try:
        members = engine.members()
        if not members:
            raise EngineError(f"{engine.name} has no nodes", hint="start some, then run this again")
        output.note(f"{engine.name}: {len(members)} nodes")
        yield Nodes(engine=engine, members=members, home=str(paths.home()), archive=pack_tool())
    finally:
        engine.close()


def _engine(given: str | None, python: str | None) -> Engine:
    """Return the engine by the words of --on; without any, the one whose job this runs in."""
    name, _, address = (given or ("slurm" if "SLURM_JOB_ID" in os.environ else "ray")).partition(":")
    if name == "ray":
        from verl_env.cluster.ray import RayEngine

        return RayEngine(address or None, python)
    if name == "slurm" and not address:
        from verl_env.cluster.slurm import SlurmEngine

        return SlurmEngine()
    raise UsageError(
        f"`{given}` is no engine that carries things between nodes", hint="--on slurm, or --on ray[:HOST:PORT]"
    )
