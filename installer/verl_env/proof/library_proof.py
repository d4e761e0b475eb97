"""The `linkage` level as one run: read, judge, write down every finding, and say in a line what was found."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

from verl_env import toml
from verl_env.files import write_atomically
from verl_env.matrix.load import shipped
from verl_env.proof.library_survey import survey_libraries
from verl_env.proof.linkage import Finding, Known, judge
from verl_env.proof.runs import Run
from verl_env.records import from_plain

if TYPE_CHECKING:
    from pathlib import Path

    from verl_env.proof.library_survey import Environment

LEVEL, NAME = "linkage", "libraries"
_FIRST = 3


def prove_linkage(environment: Environment, log_folder: Path) -> tuple[Run, tuple[Finding, ...]]:
    """Return the run, which passes when every finding is explained, and the findings."""
    started = time.monotonic()
    known = read_known()
    surveyed = survey_libraries(environment, known)
    findings = (*surveyed.unreadable, *judge(surveyed.subject, known))
    left_out = [f"{count} for {why} left out" for why, count in surveyed.left_out.items()]
    files = ", ".join([f"{len(surveyed.subject.files)} ELF files", *left_out])
    log = log_folder / f"{LEVEL}-{NAME}.log"
    log_folder.mkdir(parents=True, exist_ok=True)
    write_atomically(log, "\n".join([files, "", *as_text(findings)]) + "\n")
    run = Run(
        level=LEVEL,
        name=NAME,
        passed=not faults_of(findings),
        seconds=time.monotonic() - started,
        last_line=f"{files}; {summary(findings)}",
        log=str(log),
    )
    return run, findings


def read_known() -> Known:
    """Return what upstream's wheels are known to ship."""
    text = (shipped() / "optional_libraries.toml").read_text(encoding="utf-8")
    return from_plain(Known, toml.loads(text))


def faults_of(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Return the findings that nothing explains."""
    return tuple(it for it in findings if not it.explanation)


def summary(findings: tuple[Finding, ...]) -> str:
    """Say the first faults; or how many findings there are, of which packages, all explained."""
    if faults := faults_of(findings):
        first = "; ".join(f"{it.file}{f' ({it.package})' if it.package else ''} {it.what}" for it in faults[:_FIRST])
        return first + (f"; and {len(faults) - _FIRST} more" if len(faults) > _FIRST else "")
    if not findings:
        return "each finds its libraries"
    packages = ", ".join(f"{name} {count}" for name, count in Counter(it.package for it in findings).items())
    return f"each finds its libraries, but for {len(findings)} that are known and explained ({packages})"


def as_text(findings: tuple[Finding, ...]) -> list[str]:
    """Return a line for each finding, faults first, those that are explained below what explains them."""
    lines = [f"FAULT {it.kind}: {it.file} ({it.package or 'no package'}) {it.what}" for it in faults_of(findings)]
    for package, reason in dict.fromkeys((it.package, it.explanation) for it in findings if it.explanation):
        lines.append(f"{package}: {reason}")
        mine = [it for it in findings if (it.package, it.explanation) == (package, reason)]
        lines += [f"  {it.file} {it.what}" for it in mine]
    return lines
