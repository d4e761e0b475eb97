"""Evidence: added to a row's file, leaving what people wrote there; and carried from one machine to another. Pure."""

from __future__ import annotations

import datetime as dt
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.version import Version

from verl_env import toml
from verl_env.errors import MatrixError
from verl_env.matrix.fit import fit_row
from verl_env.matrix.rows import Evidence
from verl_env.node.facts import Driver, Gpu, Node, Value
from verl_env.node.names import NO_DEVICE
from verl_env.records import RecordError, from_plain

if TYPE_CHECKING:
    from verl_env.matrix.facts import Facts
    from verl_env.matrix.matrix import Entry
    from verl_env.matrix.pins import PinsHeader

KEYS = ("level", "date", "python", "arch", "pins", "device", "glibc", "by")
SHOWN = ("imported", "exercised", "gpu")  # the levels that a run shows; those below follow from files
_DEVICE = re.compile(r"(?P<names>.+), driver (?P<driver>\d{3,4}(\.\d+){1,2})")
_PATH = re.compile(r"(?<![\w.<])/[\w.-]+/")
_COUNT = re.compile(r"^\d+x ")


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceFile:
    """One run's evidence on its way to whoever keeps the matrix, with the sizes that were measured."""

    row: str
    evidence: Evidence
    installed_bytes: int
    installed_files: int


def with_evidence(text: str, evidence: Evidence) -> str:
    """Return a row's TOML with this evidence; it takes the place of the same level on the same device.

    Evidence of the variant's earlier pins goes: it no longer counts. Higher levels, and other devices, stay.
    """
    import tomlkit
    from tomlkit.items import AoT

    document = tomlkit.parse(text)
    kept = [it for it in document.get("evidence", []) if not _replaced(it, evidence)]
    entries = AoT([])
    for item in kept:
        entries.append(tomlkit.item(dict(item)))
    fresh = tomlkit.table()
    for key in KEYS:
        fresh[key] = getattr(evidence, key)
    if evidence.over:
        fresh["over"] = evidence.over
    if evidence.shown:
        fresh["shown"] = dict(evidence.shown)
    entries.append(fresh)
    document.pop("evidence", None)
    body = tomlkit.dumps(document).rstrip("\n")
    added = tomlkit.document()
    added["evidence"] = entries
    return f"{body}\n\n{tomlkit.dumps(added).strip()}\n"


def _replaced(item: dict[str, str], evidence: Evidence) -> bool:
    """Whether an entry gives way: it is of other pins of the same variant, or the same level on the same device."""
    same_variant = item["arch"] == evidence.arch and item["python"].split(".")[:2] == evidence.python.split(".")[:2]
    same_run = item["level"] == evidence.level and item["device"] == evidence.device
    return same_variant and (item["pins"] != evidence.pins or same_run)


def render_evidence_file(found: EvidenceFile) -> str:
    """Write evidence as the TOML that `matrix import-evidence` reads."""
    lines = [
        "# Made by `verl-env matrix prove --export`; not for editing. For whoever keeps the matrix:",
        "# `verl-env matrix import-evidence FILE` checks it and adds it to its row.",
        f"row = {json.dumps(found.row)}",
        f"installed_bytes = {found.installed_bytes}",
        f"installed_files = {found.installed_files}",
        "",
        "[evidence]",
    ]
    for key in KEYS:
        value = getattr(found.evidence, key)
        lines.append(f"{key} = {value.isoformat() if isinstance(value, dt.date) else _quoted(value)}")
    if found.evidence.over:
        lines.append(f"over = {_quoted(found.evidence.over)}")
    if found.evidence.shown:
        lines += ["", "[evidence.shown]"]
        lines += [f"{name} = {_quoted(said)}" for name, said in found.evidence.shown.items()]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def parse_evidence_file(text: str, where: str) -> EvidenceFile:
    """Read an evidence file; raises MatrixError with every fault of it."""
    try:
        return from_plain(EvidenceFile, toml.loads(text))
    except toml.TOMLDecodeError as err:
        faults: tuple[str, ...] = (str(err),)
    except RecordError as err:
        faults = err.faults
    raise MatrixError(
        f"`{where}` is no evidence file", details=faults, hint="make it with `verl-env matrix prove ROW --export FILE`"
    )


def evidence_faults(evidence: Evidence, entry: Entry, pins: PinsHeader, facts: Facts, today: dt.date) -> list[str]:
    """Return what speaks against a run of these pins having given this evidence."""
    faults = []
    if evidence.pins != pins.digest:
        faults.append(f"it is of other pins: {evidence.pins}; those of the row are {pins.digest}")
    if evidence.level not in SHOWN:
        faults.append(f"level `{evidence.level}` is not one that a run shows ({', '.join(SHOWN)})")
    if not pins.made <= evidence.date <= today + dt.timedelta(days=1):  # a day: clocks and time zones
        faults.append(f"its date is {evidence.date}; the pins were made on {pins.made}, and today is {today}")
    if evidence.python.rpartition(".")[0] != pins.python:
        faults.append(f"Python {evidence.python} does not run pins for {pins.python}")
    if pins.glibc and _older(evidence.glibc, pins.glibc):
        faults.append(f"glibc {evidence.glibc} does not run wheels for {pins.glibc}")
    if evidence.level == "gpu" and all(said.startswith("skipped") for said in evidence.shown.values()):
        faults.append("level gpu, and no check that says what it found")
    if named := [name for name, said in evidence.shown.items() if _PATH.search(said)]:
        faults.append(f"`{named[0]}` names a path of the machine that it ran on")
    return faults + _device_faults(evidence, entry, pins, facts)


def _older(glibc: str, floor: str) -> bool:
    return re.fullmatch(r"\d+\.\d+", glibc) is None or Version(glibc) < Version(floor)


def _device_faults(evidence: Evidence, entry: Entry, pins: PinsHeader, facts: Facts) -> list[str]:
    """Hold the device against the row, as choosing would; a GPU that nobody knows by name is believed."""
    if evidence.device == NO_DEVICE:
        return ["level gpu, and no device"] if evidence.level == "gpu" else []
    said = _DEVICE.fullmatch(evidence.device)
    if said is None:
        return [f"its device is `{evidence.device}`, and not a name and a driver"]
    names = [_COUNT.sub("", part) for part in said["names"].split(" + ")]
    known = [gpu for name in names if (gpu := facts.gpu(name))]
    node = Node(
        driver=Driver(version=said["driver"], source="evidence"),
        gpus=tuple(Gpu(name=it.name, source="evidence", compute_capability=it.compute_capability) for it in known),
        glibc=Value(value=evidence.glibc, source="evidence"),
        machine=Value(value=evidence.arch, source="evidence"),
    )
    if evidence.level != "gpu":
        return []  # imports need no GPU that fits
    fit = fit_row(entry, pins, node, facts, for_cpu=entry.row.cuda is None)
    return [f"{evidence.device} cannot have run it: {reason}" for reason in fit.reasons]
