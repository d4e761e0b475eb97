"""The build record: what a wheel of the wheelhouse is, what it was made from, where and how. Pure."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.version import Version

from verl_env.builds.inputs import Inputs, Target
from verl_env.matrix.facts import binary_runs
from verl_env.matrix.pins import WHEELHOUSE, Pin
from verl_env.records import from_plain, to_plain

if TYPE_CHECKING:
    from collections.abc import Iterable

SCHEMA = 1
BUILT, ADOPTED = "built", "adopted"
_KEY = re.compile(r"[0-9a-f]{20}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Maker:
    """The host that compiled: `compiler` is the first line of its C++ compiler's version; `memory` in bytes."""

    compiler: str
    glibc: str
    cpu: str
    cores: int
    memory: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """What it took, all attempts together: wall `seconds`, source files that were `compiled`, `attempts`.

    `jobs` compilers ran beside each other at last; `peak` is the most memory that they held together, in bytes.
    """

    seconds: float
    compiled: int
    attempts: int
    jobs: int
    peak: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One wheel. `version` has its label; `glibc` is the oldest that it loads on, None when it asks for none.

    `architectures` are those that were found in the wheel. A built one has `inputs`, `maker` and `effort`; an adopted
    one says in `origin` where it came from, without credentials. `made` is in UTC, ISO 8601.
    """

    schema: int
    kind: str
    key: str
    package: str
    version: str
    file: str
    size: int
    sha256: str
    target: Target
    architectures: tuple[str, ...]
    made: str
    by: str
    glibc: str | None = None
    origin: str = ""
    inputs: Inputs | None = None
    maker: Maker | None = None
    effort: Effort | None = None

    @property
    def pin(self) -> Pin:
        """The wheel as a lock has it."""
        return Pin(
            name=self.package,
            version=self.version,
            file=self.file,
            size=self.size,
            sha256=self.sha256,
            source=WHEELHOUSE,
        )


def render_record(record: Record) -> str:
    """Write it as JSON."""
    return json.dumps(to_plain(record), indent=2, ensure_ascii=False) + "\n"


def parse_record(text: str) -> Record:
    """Read it; raises ValueError (RecordError among them) for what is none, or of another schema."""
    plain = json.loads(text)
    if not isinstance(plain, dict) or plain.get("schema") != SCHEMA:
        raise ValueError("not a build record of this verl-env")
    record = from_plain(Record, plain)
    if not _KEY.fullmatch(record.key) or "/" in record.file:  # both name a place in the wheelhouse
        raise ValueError("a build record whose key or file is no name")
    return record


def why_not(record: Record, target: Target, capabilities: Iterable[str], glibc: str | None) -> str | None:
    """Return why a wheel does not suit what is installed or the GPUs that are here; None when it does."""
    theirs = record.target
    sides = (
        ("Python", theirs.python, target.python),
        ("machine", theirs.machine, target.machine),
        ("torch", theirs.torch, target.torch),
        ("CUDA", theirs.cuda, target.cuda),
    )
    for what, has, wants in sides:
        if not (same_torch(has, wants) if what == "torch" and has and wants else has == wants):
            return f"it was compiled for {what} {has}, and this is {what} {wants}"
    if record.glibc and glibc and Version(record.glibc) > Version(glibc):
        return f"it needs glibc {record.glibc}, and this is {glibc}"
    lacking = [it for it in capabilities if not any(binary_runs(arch, it) for arch in record.architectures)]
    if lacking:
        return f"it is compiled for {', '.join(record.architectures)}, and a GPU here is {', '.join(lacking)}"
    return None


def same_torch(one: str, other: str) -> bool:
    """Whether two spellings are one release: a label is no difference where the other has none."""
    left, right = Version(one), Version(other)
    return left == right or (left.public == right.public and (left.local is None or right.local is None))
