"""How far each node came on the way to an environment, and what was learnt there. Pure."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from verl_env.cluster.facts import failure_of
from verl_env.environment.preflight import minor_of, usable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from verl_env.cluster.engine import Answer, Member
    from verl_env.cluster.facts import Seen

# The stages of a node, in order. A node with a `why` went no further than its stage.
LOOK, PREFLIGHT, CARRY, BUILD, PROVED, SWITCH, SWITCHED = (
    "look",
    "preflight",
    "carry",
    "build",
    "proved",
    "switch",
    "switched",
)


@dataclass(slots=True, kw_only=True)
class Course:
    """One node on its way: `there` when the environment stood already, `carried_bytes` of the bundle that came."""

    seen: Seen
    stage: str = LOOK
    why: str = ""
    there: bool = False
    environment: str = ""
    proof: str = ""
    device: str = ""
    carried_bytes: int = 0

    @property
    def name(self) -> str:
        """The node's name in the cluster."""
        return self.seen.name

    @property
    def member(self) -> Member:
        """The node as its engine knows it."""
        return self.seen.member

    def reach(self, stage: str) -> None:
        """Come to a stage."""
        self.stage = stage

    def fail(self, stage: str, why: str) -> None:
        """Stop at a stage."""
        self.stage, self.why = stage, why

    def plain(self) -> dict[str, Any]:
        """Return it as scripts read it."""
        return {
            "name": self.name,
            "address": self.member.address,
            "stage": self.stage,
            "ok": not self.why,
            "why": self.why or None,
            "there_before": self.there,
            "environment": self.environment or None,
            "proof": self.proof or None,
            "device": self.device or None,
            "carried_bytes": self.carried_bytes,
        }


def failure_in(answer: Answer) -> str:
    """Return why a request did not go well on a node, or nothing."""
    said = answer.error or str(answer.said.get("error") or "")
    if said:
        return said
    failed = next((it for it in answer.said.get("calls") or () if it["code"] != 0), None)
    return failure_of(failed) if failed else ""


def data_in(answer: Answer) -> dict[str, Any]:
    """Return the data that the last call of a request gave."""
    data: dict[str, Any] = json.loads(answer.said["calls"][-1]["out"])["data"]
    return data


def python_on(seen: Seen, minor: str) -> str | None:
    """Return the exact version of the Python that a build on this node would take; None when it has none."""
    found = usable(seen.node.interpreters) if seen.node else ()
    return next((it.version for it in found if it.version and minor_of(it.version) == minor), None)


def stray_pythons(every: Iterable[Seen], minor: str) -> dict[str, str]:
    """Return, by node, why its Python is not that of most: Ray compares exact versions when a node joins.

    Of a node that was described nothing is known.
    """
    exact = {it.name: python_on(it, minor) for it in every if it.node and not it.node.described}
    counted = Counter(version for version in exact.values() if version)
    if not counted:
        return dict.fromkeys(exact, f"no Python {minor} is here")
    most = max(counted, key=lambda it: (counted[it], it))
    return {
        name: f"Python {version} is here, and {most} on most nodes: Ray joins only the same" if version else missing
        for name, version in exact.items()
        if version != most
        for missing in (f"no Python {minor} is here (most nodes have {most})",)
    }
