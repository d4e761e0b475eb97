"""Ray: where a driver would go, whether somebody answers there, and what the cluster's nodes are."""

from __future__ import annotations

import contextlib
import socket
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verl_env.doctor.known import found
from verl_env.node.answers import merge_lines
from verl_env.node.ray_head import DEFAULT_ADDRESS, GCS_PORT, fault_of_head, place_of, remembered, temp_folder
from verl_env.output import human_bytes

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from verl_env.doctor.situation import Situation
    from verl_env.node.facts import Finding

_DASHBOARD_PORT = 8265
_SOCKET_PATH_MOST = 107  # unix(7): sun_path
_RAYS_OWN = len("/ray/session_2026-11-30_15-00-00_123456_1234567/sockets/plasma_store")
_CONNECT_SECONDS, _PATIENT_SECONDS = 0.6, 5.0
_JOIN_SECONDS = 50.0
_LOCAL = ("127.0.0.1", "localhost", "::1", "0.0.0.0")  # noqa: S104 - named to be judged, nothing is bound


def check_ray(situation: Situation) -> Iterator[Finding]:
    """Yield what is wrong with Ray's address, temporary folder and remembered cluster; nothing is joined."""
    environ = situation.environ
    address = environ.get("RAY_ADDRESS")
    if address:
        yield from judge_address(address, "RAY_ADDRESS", situation)
    length = len(str(temp_folder(environ))) + _RAYS_OWN
    if length > _SOCKET_PATH_MOST:
        evidence = f"{temp_folder(environ)}: a socket's path would have {length} bytes, {_SOCKET_PATH_MOST} are allowed"
        yield found(
            "ray-temp-path", evidence, "set RAY_TMPDIR to a short path with room, such as /tmp/r", severity="error"
        )
    yield from _remembered(situation)
    yield from _first_process(situation)


def judge_address(address: str, source: str, situation: Situation) -> Iterator[Finding]:
    """Judge one address, and see whether somebody answers there."""
    place = place_of(address)
    if place is None:
        return
    host, port = place
    if port == _DASHBOARD_PORT or address.startswith(("http://", "https://")):
        evidence = f"{source}=`{address}`"
        yield found(
            "ray-dashboard-port",
            evidence,
            f"set {source} to {host}:{GCS_PORT} for drivers; http://{host}:{_DASHBOARD_PORT} is for `ray job submit`",
        )
        return
    fault = head_fault(host, port, situation)
    if fault and source == "RAY_ADDRESS" and situation.node.container and host in _LOCAL:
        yield found(
            "ray-address-loopback",
            f"{source}=`{address}`, in a container",
            "name the head by the address that other nodes reach",
        )
    if fault:
        evidence = f"{source}=`{address}`: {fault}"
        action = (
            "start the head there (`ray start --head --port=6379`), open the port between nodes, or unset RAY_ADDRESS"
        )
        yield found("ray-unreachable", evidence, action, severity="error")


def head_fault(host: str, port: int, situation: Situation) -> str:
    """Greet who listens there; return why that is no Ray head that answers, or nothing."""
    seconds = _PATIENT_SECONDS if situation.deep else _CONNECT_SECONDS
    return fault_of_head(host, port, situation.environ, seconds=seconds)


def _remembered(situation: Situation) -> Iterator[Finding]:
    """Find a remembered cluster that does not answer."""
    known = remembered(situation.environ)
    place = place_of(known[1]) if known else None
    if known and place and (fault := head_fault(*place, situation)):
        action = "`ray stop` on this node (it ends Ray processes of yours), which removes it"
        yield found("ray-stale-session", f"{known[0]} says {known[1]}: {fault}", action)


def _first_process(situation: Situation) -> Iterator[Finding]:
    """Find a container whose first process is a `ray start` that does not stay."""
    words = (situation.host.read("/proc/1/cmdline") or "").replace("\0", " ")
    if situation.node.container and "ray start" in words and "--block" not in words:
        yield found("ray-no-block", f"process 1: {words.strip()[:200]}", "add --block to `ray start`")


def check_cluster(situation: Situation, address: str | None) -> Iterator[Finding]:
    """Join the cluster with the environment's own Ray, and look at every node; within a time limit."""
    subject = situation.subject
    known = remembered(situation.environ)
    chosen = address or situation.environ.get("RAY_ADDRESS") or (known[1] if known else DEFAULT_ADDRESS)
    place = place_of(chosen)
    if place is None:
        place = place_of(known[1]) if known else ("127.0.0.1", GCS_PORT)
    faults = list(judge_address(chosen, "the address", situation)) if place else []
    yield from faults
    if faults or place is None:
        return
    if subject is None or subject.error or not subject.version_of("ray"):
        evidence = f"{chosen} answers; {subject.folder if subject else 'no environment'} has no Ray that starts"
        yield found("probe-failed", evidence, "name an environment with Ray: `verl-env doctor ENVIRONMENT --ray`")
        return
    child = Path(__file__).with_name("ray_child.py")
    words: list[str | Path] = [subject.python, "-I", child, f"{place[0]}:{place[1]}"]
    done = replace(situation.host, patience=_JOIN_SECONDS).run(words)
    said = merge_lines(done.stdout)
    if "nodes" not in said and "error" not in said and "head" not in said:
        evidence = f"{chosen}: {'no end within its time limit' if done.timed_out else ' '.join(done.tail(1))}"
        yield found(
            "ray-unreachable", evidence, "see the head's logs in /tmp/ray/session_latest/logs", severity="error"
        )
        return
    yield from judge_cluster(said, situation, chosen, own=_addresses())


def judge_cluster(
    said: dict[str, Any], situation: Situation, address: str, *, own: Collection[str] = _LOCAL
) -> Iterator[Finding]:
    """Judge what the head and its nodes said; `own` are the addresses of this machine."""
    subject = situation.subject
    receipt = subject.receipt if subject else None
    ray = subject.version_of("ray") if subject else None
    python = receipt.python if receipt else said.get("own_python")
    others = [("the head", said["head"])] if said.get("head") else []
    others += [(f"node {it['address']}", it["said"]) for it in said.get("nodes") or () if it.get("said")]
    differ = [
        f"{name}: Ray {it['ray']}, Python {it['python']}"
        for name, it in others
        if (ray and it.get("ray") and it["ray"] != ray) or (python and it.get("python") and it["python"] != python)
    ]
    if differ:
        evidence = f"here Ray {ray}, Python {python}; {'; '.join(differ)}"
        action = "install the same lock on all nodes: `verl-env lock` here, `verl-env install LOCK` there"
        yield found("ray-version-mismatch", evidence, action, severity="error")
    elif said.get("error"):
        error = said["error"]
        yield found(
            "ray-unreachable",
            f"{address}: {error[:300]}",
            "run it on a node of the cluster, or see the head's logs",
            severity="error",
        )
    for node in said.get("nodes") or ():
        yield from _judge_node(node, gpus=len(situation.node.gpus) if node["address"] in own else 0)


def _judge_node(node: dict[str, Any], *, gpus: int) -> Iterator[Finding]:
    """Judge one node's resources; `gpus` is how many NVML shows there, where that is known."""
    name, resources, own = f"node {node['address']}", node.get("resources") or {}, node.get("said") or {}
    store, shm = resources.get("object_store_memory"), own.get("shm")
    if store and shm and store > shm:
        evidence = f"{name}: object store {human_bytes(store)}, /dev/shm {human_bytes(shm)}"
        yield found(
            "ray-object-store", evidence, "give /dev/shm more room, or start Ray with --object-store-memory=BYTES"
        )
    if not own:
        evidence = f"{name}: {node.get('error') or 'no answer'}"[:300]
        yield found("probe-failed", evidence, "see that node's logs in /tmp/ray/session_latest/logs")
    limit = own.get("limit")
    memory = resources.get("memory")
    if limit and memory and memory > limit:
        evidence = f"{name}: Ray counts {human_bytes(memory)}, the cgroup allows {human_bytes(limit)}"
        yield found("ray-memory-limit", evidence, "start Ray with --memory=BYTES below the limit")
    if resources.get("GPU", 0) < gpus:
        evidence = f"{name}: Ray has {resources.get('GPU', 0):g} GPUs, NVML shows {gpus}"
        yield found(
            "ray-gpus-missing",
            evidence,
            "start Ray where all GPUs are visible (CUDA_VISIBLE_DEVICES), or with --num-gpus",
        )


def _addresses() -> set[str]:
    """Return this machine's own addresses: those of its name, and the one that leads outside, which Ray takes."""
    known = set(_LOCAL)
    with contextlib.suppress(OSError):
        known |= {it[4][0] for it in socket.getaddrinfo(socket.gethostname(), None)}  # type: ignore[misc]
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # a route is looked up, and nothing is sent (RFC 5737: nobody's address)
        known.add(probe.getsockname()[0])
    return known
