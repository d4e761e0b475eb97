"""A build in the matrix: its record, and what was shown of its wheel. `builds/<row>-<key>.json`. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from packaging.version import Version

from verl_env.builds.inputs import key_of
from verl_env.builds.record import BUILT, Record, parse_record, same_torch
from verl_env.records import RecordError, from_plain, to_plain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from verl_env.environment.receipt import Receipt, Shown
    from verl_env.matrix.builds import Build
    from verl_env.matrix.rows import Row

LEVELS = ("linkage", "device", "kernel")  # those that are about compiled code


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownOn:
    """What one environment with the wheel showed on one `device`; `when` is in UTC, `checks` what each found."""

    device: str
    when: str
    checks: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Proven:
    """A record as the matrix keeps it, with the row it is of."""

    row: str
    record: Record
    shown: tuple[ShownOn, ...] = ()

    @property
    def file_name(self) -> str:
        """The name of the file that it lives in."""
        return f"{self.row}-{self.record.key}.json"

    def with_shown(self, shown: tuple[ShownOn, ...]) -> Proven:
        """Add what was shown; it takes the place of what was shown on the same device before."""
        devices = {it.device for it in shown}
        return replace(self, shown=(*(it for it in self.shown if it.device not in devices), *shown))


def render_proven(proven: Proven) -> str:
    """Write it as JSON."""
    return json.dumps(to_plain(proven), indent=2, ensure_ascii=False) + "\n"


def parse_proven(text: str) -> Proven:
    """Read it; raises ValueError, RecordError among them."""
    plain = json.loads(text)
    if not isinstance(plain, dict) or not isinstance(plain.get("record"), dict):
        raise RecordError(("not a build of the matrix",))
    parse_record(json.dumps(plain["record"]))
    return from_plain(Proven, plain)


def shown_in(receipt: Receipt) -> tuple[ShownOn, ...]:
    """Take what a receipt says of compiled code, device by device; nothing that was shown without one."""
    runs = [(receipt.device, receipt.made, receipt.shown), *((it.device, it.when, it.shown) for it in receipt.later)]
    return tuple(
        ShownOn(device=device, when=when, checks=checks)
        for device, when, shown in runs
        if (checks := dict(_checks(shown))) and any(it.level == "kernel" for it in shown)
    )


def _checks(shown: tuple[Shown, ...]) -> Iterator[tuple[str, str]]:
    for it in shown:
        if it.level in LEVELS:
            yield it.name, f"skipped: {it.said}" if it.skipped else it.said


def proven_faults(proven: Proven, row: Row) -> list[str]:
    """Return what speaks against a build of the matrix: it must be of the row's own source, tools, torch and CUDA."""
    record = proven.record
    build = next((it for it in row.build if it.package == record.package), None)
    if build is None:
        return [f"row {proven.row} names no build of {record.package}"]
    return list(_faults(record, build, row))


def _faults(record: Record, build: Build, row: Row) -> Iterator[str]:
    inputs, target = record.inputs, record.target
    if record.kind != BUILT or inputs is None or record.maker is None or record.effort is None:
        yield "it was not compiled by verl-env"
        return
    if key_of(inputs) != record.key:
        yield f"key: its inputs give {key_of(inputs)}"
    if inputs.sdist != build.sdist.sha256 or Version(record.version).public != build.version:
        yield f"it was compiled from another source than {build.sdist.file}"
    known = {f"{pin.name}=={pin.version} {pin.sha256}" for pin in build.requires}
    if other := set(inputs.requires) - known:
        yield f"it was compiled with other tools: {', '.join(sorted(it.split(' ')[0] for it in other))}"
    if inputs.target != target or target.cuda != build.toolkit or not same_torch(target.torch, row.set["torch"]):
        yield f"it was compiled against torch {target.torch} with CUDA {target.cuda}"
    if target.python not in row.python or target.machine not in row.arch:
        yield f"the row is not for Python {target.python} on {target.machine}"
