"""What moves things between nodes: an engine that the cluster runs already, Ray or Slurm, seen through one interface.

An engine knows its nodes, runs the agent (`agent_child.py`) on them, and carries a file to them. It raises EngineError
when it cannot be reached at all; what befalls one node is in that node's answer, and the others go on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One node as its engine knows it: `name` is unique in the cluster, `address` what others reach it by."""

    name: str
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the agent said on one node; `error` when the node gave no answer, and why."""

    said: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""


class Engine(Protocol):
    """Ray or Slurm. Every method takes as long as its slowest node, and no longer than its time limit."""

    name: ClassVar[str]

    def members(self) -> tuple[Member, ...]:
        """Return the nodes that the engine has now, by name."""

    def ask(
        self,
        members: Sequence[Member],
        request: Mapping[str, Any],
        *,
        seconds: float,
        told: Callable[[str, str], None] | None = None,
    ) -> dict[str, Answer]:
        """Run the agent on each node at the same time, once, and return its answers by node name.

        `request` is what `agent_child.serve` takes. `told(name, line)` is called with each line that the agent's
        programs write to stderr, as it comes, where the engine can. A node that has not answered after `seconds` is
        given up.
        """

    def send(
        self,
        members: Sequence[Member],
        path: Path,
        to: str,
        *,
        told: Callable[[str, int], None] | None = None,
    ) -> dict[str, str]:
        """Carry a file to the same absolute path on each node; return why it did not arrive, by node name.

        A node that has some of it already gets the rest. `told(name, count)` is called with the bytes a node has so
        far. The file appears under its name only when all of it is there.
        """

    def close(self) -> None:
        """Leave the cluster; what the engine started on its nodes ends."""
