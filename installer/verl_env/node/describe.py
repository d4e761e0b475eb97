"""A node that someone wrote down, so that a lock can be made anywhere. Pure."""

from __future__ import annotations

import difflib
import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from verl_env.errors import UsageError
from verl_env.node.facts import Driver, Gpu, Node, Value
from verl_env.node.names import plain_name
from verl_env.records import RecordError, from_plain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_DRIVER = re.compile(r"[0-9]{3,4}\.[0-9]{1,3}(\.[0-9]{1,3})?")
_GLIBC = re.compile(r"2\.[0-9]{1,2}")
_CAPABILITY = re.compile(r"[0-9]{1,2}\.[0-9]")
_COUNTED = re.compile(r"(?:([0-9]{1,3})\s*[x×*]\s*)?(.+)", re.IGNORECASE)  # noqa: RUF001 - people paste the sign
_MACHINES = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}


def describe(
    *,
    driver: str | None = None,
    gpus: Sequence[str] = (),
    compute_capabilities: Sequence[str] = (),
    glibc: str | None = None,
    machine: str | None = None,
    names: Mapping[str, str] | None = None,
) -> Node:
    """Return the node these words describe; UsageError names the first that cannot be understood.

    `names` maps GPU names to compute capabilities. What is not said stays unknown.
    """
    cards = _describe_gpus(gpus, compute_capabilities, names or {})
    device = Value(value=", ".join(card.name for card in cards), source="described") if cards else None
    return Node(
        described=True,
        driver=Driver(version=check_driver(driver), source="described") if driver is not None else None,
        gpus=cards,
        nvidia_device=device,
        glibc=Value(value=check_glibc(glibc), source="described") if glibc is not None else None,
        machine=Value(value=check_machine(machine), source="described") if machine is not None else None,
    )


def check_driver(text: str) -> str:
    """Return a driver version, or raise UsageError."""
    if _DRIVER.fullmatch(text.strip()):
        return text.strip()
    raise UsageError(
        f"`{text}` is no NVIDIA driver version",
        hint="write it as nvidia-smi shows it, such as 580.95.05",
    )


def check_glibc(text: str) -> str:
    """Return a glibc version, or raise UsageError."""
    if _GLIBC.fullmatch(text.strip()):
        return text.strip()
    raise UsageError(f"`{text}` is no glibc version", hint="write it as `ldd --version` shows it, such as 2.35")


def check_machine(text: str) -> str:
    """Return an architecture as wheels name it, or raise UsageError."""
    machine = _MACHINES.get(text.strip().lower())
    if machine is None:
        raise UsageError(f"`{text}` is no architecture that verl runs on", hint="use x86_64 or aarch64")
    return machine


def check_capability(text: str) -> str:
    """Return a compute capability, or raise UsageError."""
    if _CAPABILITY.fullmatch(text.strip()):
        return text.strip()
    raise UsageError(f"`{text}` is no compute capability", hint="write major.minor, such as 9.0 for Hopper")


def _describe_gpus(
    gpus: Sequence[str], compute_capabilities: Sequence[str], names: Mapping[str, str]
) -> tuple[Gpu, ...]:
    """Return one GPU for each that is named; names need not be known when capabilities are given too."""
    capabilities = [check_capability(text) for text in compute_capabilities]
    words = [word for name in gpus for word in _expand(name)]
    if not words:
        found = [("unnamed GPU", capability) for capability in capabilities]
    elif len(capabilities) == 1:
        found = [(word, capabilities[0]) for word in words]
    elif capabilities and len(capabilities) != len(words):
        raise UsageError(
            f"{len(words)} GPUs and {len(capabilities)} compute capabilities do not pair up",
            hint="give one compute capability for all of them, or one for each",
        )
    elif capabilities:
        found = list(zip(words, capabilities, strict=True))
    else:
        found = [_look_up(word, names) for word in words]
    return tuple(
        Gpu(name=name, source="described", index=index, compute_capability=capability)
        for index, (name, capability) in enumerate(found)
    )


def _expand(text: str) -> list[str]:
    """Return `8xh200` as eight names."""
    counted = _COUNTED.fullmatch(text.strip())
    if counted is None or counted[1] == "0":
        raise UsageError(f"`{text}` names no GPU", hint="write a name such as h200, or 8xh200 for eight of them")
    return [counted[2].strip()] * int(counted[1] or 1)


def _look_up(word: str, names: Mapping[str, str]) -> tuple[str, str]:
    """Return the table's own name and compute capability for what someone wrote."""
    plain = {plain_name(name): name for name in reversed(list(names))}
    name = plain.get(plain_name(word))
    if name is not None:
        return name, names[name]
    close = [plain[match] for match in difflib.get_close_matches(plain_name(word), plain, n=3, cutoff=0.5)]
    raise UsageError(
        f"no GPU is known by the name `{word}`",
        hint=(f"did you mean {' or '.join(close)}? " if close else "")
        + "Any other GPU: --compute-capability (`nvidia-smi --query-gpu=compute_cap --format=csv`)",
    )


def read_node_file(text: str) -> Node:
    """Return the node in the output of `detect --json`: the whole envelope, or its `data`."""
    hint = "write the file with `verl-env detect --json > node.json` on the node itself"
    try:
        plain: Any = json.loads(text)
    except ValueError as err:
        raise UsageError(f"the node file is not JSON: {err}", hint=hint) from err
    if isinstance(plain, dict) and isinstance(plain.get("data"), dict):
        plain = plain["data"]
    if not isinstance(plain, dict) or not plain:
        raise UsageError("the node file holds no node", hint=hint)
    try:
        node = from_plain(Node, plain)
    except RecordError as err:
        raise UsageError("the node file does not describe a node", hint=hint, details=err.faults) from err
    if node.driver:
        check_driver(node.driver.version)
    if node.glibc:
        check_glibc(node.glibc.value)
    for gpu in node.gpus:
        if gpu.compute_capability is not None:
            check_capability(gpu.compute_capability)
    return replace(node, described=True)
