"""Known failures, as `matrices/failures.toml` holds them: classes with cause and remedy, and the signatures of each.

A signature is a causal pattern with structure: which program says it and what varies in it, not one report's words.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from verl_env import toml
from verl_env.errors import MatrixError, UsageError
from verl_env.matrix.load import shipped
from verl_env.records import RecordError, from_plain

NAME = "failures.toml"
CONFIDENCES = ("high", "medium", "low")


@dataclass(frozen=True, slots=True, kw_only=True)
class Compare:
    """A fact of the node held against what the log names.

    `fact` is `glibc`, `driver_api`, `compute_capability` or `machine`; `below` names the group of the pattern that
    holds the version needed; `equals` is a value that confirms the failure.
    """

    fact: str
    below: str = ""
    equals: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A class of failures. `findings` are ids of findings on the node that would confirm it."""

    title: str
    cause: str
    remedy: str
    findings: tuple[str, ...] = ()
    compare: Compare | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """How one class shows in a log.

    `words` are literal, in lower case: a line without any of them is never looked at (that keeps megabytes cheap).
    `pattern` must be found in the line and `unless` must not; `near` must be found within some dozens of lines. A
    `symptom` follows from causes and is named only when no cause is found. Lines of level warning or info count
    less, except with `any_level`. `cause` and `remedy` replace the class's; `{name}` is a group of the pattern.
    """

    id: str
    explains: str
    words: tuple[str, ...]
    pattern: str
    source: str
    examples: tuple[str, ...]
    near_misses: tuple[str, ...] = ()
    unless: str = ""
    near: str = ""
    confidence: str = "high"
    symptom: bool = False
    any_level: bool = False
    cause: str = ""
    remedy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    """Everything known: classes by name, and signatures in the order of the files (a site's first)."""

    failures: dict[str, Failure] = field(default_factory=dict)
    signatures: tuple[Signature, ...] = ()


def load_catalogue(site: str | Path | None = None) -> Catalogue:
    """Read the shipped failures, with those of a site's matrix folder before them; MatrixError has every fault."""
    folders = [shipped()]
    if site is not None:
        folders.insert(0, Path(site).expanduser())
        if not folders[0].is_dir():
            raise UsageError(f"no matrix folder at `{site}`", hint="name a folder that holds failures.toml")
    faults: list[str] = []
    read = [_read(folder / NAME, faults) for folder in folders if (folder / NAME).is_file()]
    merged = Catalogue(
        failures={name: failure for one in reversed(read) for name, failure in one.failures.items()},
        signatures=tuple(signature for one in read for signature in one.signatures),
    )
    faults += faults_of(merged)
    if faults:
        raise MatrixError(f"the known failures have {len(faults)} faults", details=tuple(faults), hint=f"mend {NAME}")
    return merged


def _read(path: Path, faults: list[str]) -> Catalogue:
    """Parse one file; what is wrong with it goes to `faults`."""
    try:
        return from_plain(Catalogue, toml.loads(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, toml.TOMLDecodeError) as err:
        faults.append(f"{path.name}: {err}")
    except RecordError as err:
        faults.extend(f"{path.name}: {fault}" for fault in err.faults)
    return Catalogue()


def faults_of(catalogue: Catalogue) -> list[str]:
    """Return what does not hold together, apart from examples, which a test runs through the whole engine."""
    faults = []
    seen: set[str] = set()
    for one in catalogue.signatures:
        where = f"{NAME}: signature `{one.id}`"
        if one.id in seen:
            faults.append(f"{where}: the id is there twice")
        seen.add(one.id)
        if one.explains not in catalogue.failures:
            faults.append(f"{where}: explains: no class is called `{one.explains}`")
        if one.confidence not in CONFIDENCES:
            faults.append(f"{where}: confidence: one of {', '.join(CONFIDENCES)}, not `{one.confidence}`")
        if not one.examples:
            faults.append(f"{where}: examples: at least one")
        if not one.words or any(not word.strip() or word != word.lower() for word in one.words):
            faults.append(f"{where}: words: at least one, in lower case")
        faults += [f"{where}: {name}: {fault}" for name, fault in _regex_faults(one)]
    return faults


def _regex_faults(one: Signature) -> list[tuple[str, str]]:
    """Return which regular expressions do not compile."""
    named = {name: _regex_fault(getattr(one, name)) for name in ("pattern", "unless", "near")}
    return [(name, fault) for name, fault in named.items() if fault]


def _regex_fault(expression: str) -> str:
    """Return why an expression does not compile; nothing when it does."""
    try:
        re.compile(expression)
    except re.error as err:
        return str(err)
    return ""
