"""What a node of a cluster said of itself, as frozen values. Pure."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from verl_env.cluster.engine import Answer, Member
from verl_env.node.facts import Folder, Node
from verl_env.records import RecordError, from_plain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Current:
    """The environment in use on a node: its `name`, its lock's digest, and the highest proof with its device."""

    name: str
    lock_digest: str
    level: str
    device: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One node: what it is, what is in use, its newest complete environment by lock digest; or why it did not say.

    `python` is that of the engine's workers there. `sharing` are the nodes whose home is this node's home too.
    """

    member: Member
    error: str = ""
    python: str = ""
    node: Node | None = None
    current: Current | None = None
    environments: Mapping[str, str] = field(default_factory=dict)
    sharing: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Its name in the cluster."""
        return self.member.name

    @property
    def folder(self) -> Folder | None:
        """The folder that environments go to."""
        folders = self.node.folders if self.node else ()
        return next((it for it in folders if it.role == "environments"), None)


def read_seen(member: Member, answer: Answer) -> Seen:
    """Read what the agent said to `detect --json` and `list --json`."""
    said = answer.said
    calls: Sequence[Any] = answer.said.get("calls") or ()
    error = answer.error or str(said.get("error") or "") or _failure(calls)
    if error:
        return Seen(member=member, error=error, python=str(said.get("python") or ""))
    try:
        node = from_plain(Node, json.loads(calls[0]["out"])["data"], strict=False)
        listed = json.loads(calls[1]["out"])["data"]["environments"]
    except (ValueError, KeyError, IndexError, TypeError, RecordError) as err:
        return Seen(member=member, error=f"its answer cannot be read: {err}"[:300])
    complete = [it for it in listed if it["complete"]]
    current = next((it for it in complete if it["current"]), None)
    return Seen(
        member=member,
        python=str(said["python"]),
        node=node,
        current=Current(**{name: current[name] for name in Current.__dataclass_fields__}) if current else None,
        environments={it["lock_digest"]: it["name"] for it in complete if not it["replaced_by"]},
        sharing=tuple(it for it in said.get("marks") or () if it != member.name),
    )


def _failure(calls: Any) -> str:
    """Return what a failed call said last."""
    failed = next((it for it in calls if it["code"] != 0), None)
    return failure_of(failed) if failed else ""


def failure_of(call: Mapping[str, Any]) -> str:
    """Say in one line why a call failed: the error of its JSON, or the end of what it wrote."""
    try:
        errors = json.loads(call["out"])["errors"]
        said = "; ".join([errors[0]["message"], *errors[0]["details"][:2]])
    except (ValueError, KeyError, IndexError, TypeError):
        said = " ".join([it.strip() for it in call["err"] if it.strip()][-2:])
    late = "its time limit ended; " if call.get("timed_out") else ""
    return f"{late}{said or 'no word'} (exit {call['code']})"


def gpus_of(node: Node) -> str:
    """Say which GPUs: `8 x NVIDIA H200`."""
    counted = Counter(gpu.name for gpu in node.gpus)
    return ", ".join(f"{count} x {name}" for name, count in sorted(counted.items())) or NONE
