"""What an all-reduce between two nodes showed: over what it went, and how fast. Pure."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from verl_env.cluster.course import failure_in
from verl_env.output import human_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from verl_env.cluster.engine import Answer, Member

FIRST_PORT, PORTS = 23_000, 4_000  # below what kernels hand out by themselves (from 32768; ip-sysctl)
UNLIMITED = -1

_NETWORK = re.compile(r"Using network (.+?)\s*$")
_IB = re.compile(r"NET/IB : Using (.+)$")
_DEVICE = re.compile(r"\[\d+\](\S+?):\d+/(\w+)")
_SOCKET = re.compile(r"NET/Socket : Using (.+)$")
_INTERFACE = re.compile(r"\[\d+\](\S+?):")
_PLUGIN = re.compile(r"NET/Plugin: (?:Loaded net plugin|Successfully loaded external plugin) (.+?)\s*$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """Two nodes and what is between them; `error` when they did not meet.

    `transport` is gloo, or NCCL's network: IB, RoCE, Socket or a plugin's. `bytes_per_second` is bus bandwidth, as
    nccl-tests count it. `memlock` are the bytes that may be locked on each node; RDMA needs them.
    """

    nodes: tuple[str, str]
    backend: str = ""
    transport: str = ""
    interfaces: tuple[str, ...] = ()
    hcas: tuple[str, ...] = ()
    plugin: str = ""
    bytes_per_second: float = 0.0
    memlock: tuple[int, ...] = ()
    error: str = ""


def rounds_of(members: Sequence[Member]) -> tuple[tuple[tuple[Member, Member], ...], ...]:
    """Pair all nodes off; an odd one goes with the first in a second round."""
    pairs = tuple((members[at], members[at + 1]) for at in range(0, len(members) - 1, 2))
    rest = ((members[0], members[-1]),) if len(members) % 2 and len(members) > 1 else ()
    return tuple(it for it in (pairs, rest) if it)


def plan_of(pairs: Iterable[tuple[Member, Member]], first_port: int) -> dict[str, Any]:
    """Return what the probe on each node reads: its rank, and where the two meet."""
    return {
        "ranks": {
            it.name: {"rank": rank, "address": pair[0].address, "port": first_port + number}
            for number, pair in enumerate(pairs)
            for rank, it in enumerate(pair)
        }
    }


def read_link(pair: tuple[Member, Member], answers: Mapping[str, Answer]) -> Link:
    """Read what both nodes said."""
    nodes = (pair[0].name, pair[1].name)
    if why := [f"{name}: {it}" for name in nodes if (it := failure_in(answers[name]))]:
        return Link(nodes=nodes, error="; ".join(why))
    try:
        said = [json.loads(answers[name].said["calls"][-1]["out"].strip().splitlines()[-1]) for name in nodes]
        wrong = [name for name, it in zip(nodes, said, strict=True) if not it["right"]]
        lines = [line for it in said for line in it["nccl"]]
        found = nccl_facts(lines)
        return Link(
            nodes=nodes,
            backend=said[0]["backend"],
            transport=found.transport or said[0]["backend"],
            interfaces=found.interfaces or tuple(dict.fromkeys(it["interface"] for it in said)),
            hcas=found.hcas,
            plugin=found.plugin,
            bytes_per_second=min(it["bytes_per_second"] for it in said),
            memlock=tuple(it["memlock"] for it in said),
            error=f"a wrong sum on {', '.join(wrong)}" if wrong else "",
        )
    except (ValueError, KeyError, IndexError, TypeError) as err:
        return Link(nodes=nodes, error=f"what the probe said cannot be read: {err}"[:300])


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclFacts:
    """What NCCL's log (NCCL_DEBUG=INFO) says of its networks."""

    transport: str = ""
    interfaces: tuple[str, ...] = ()
    hcas: tuple[str, ...] = ()
    plugin: str = ""


def nccl_facts(lines: Iterable[str]) -> NcclFacts:
    """Read NCCL's words: which network it took, over which devices, by which plugin."""
    transport = plugin = ""
    interfaces: dict[str, None] = {}
    hcas: dict[str, str] = {}
    for line in lines:
        if match := _NETWORK.search(line):
            transport = match[1]
        if match := _IB.search(line):
            hcas |= dict(_DEVICE.findall(match[1]))
        if match := _SOCKET.search(line):
            interfaces |= dict.fromkeys(_INTERFACE.findall(match[1]))
        if match := _PLUGIN.search(line):
            plugin = match[1]
    if transport == "IB" and hcas and set(hcas.values()) == {"RoCE"}:
        transport = "RoCE"
    return NcclFacts(transport=transport, interfaces=tuple(interfaces), hcas=tuple(hcas), plugin=plugin)


def line_of(link: Link) -> str:
    """Say it in one line."""
    ends = f"{link.nodes[0]} - {link.nodes[1]}"
    if link.error:
        return f"{ends}: all-reduce failed: {link.error}"
    over = ", ".join(filter(None, (*link.interfaces, *link.hcas, link.plugin and f"plugin {link.plugin}")))
    locked = "/".join("unlimited" if it == UNLIMITED else human_bytes(it) for it in dict.fromkeys(link.memlock))
    no_gpu = " (no GPU: NCCL was not tried)" if link.backend == "gloo" else ""
    rate = f"{human_bytes(link.bytes_per_second)}/s"
    return f"{ends}: {link.transport} over {over or 'an unknown interface'}, {rate}, memlock {locked}{no_gpu}"
