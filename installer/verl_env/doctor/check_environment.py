"""The environment itself: does its Python start, is it the one it was, do its packages go together and fit here."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from verl_env.doctor.known import KNOWN, found

if TYPE_CHECKING:
    from collections.abc import Iterator

    from verl_env.doctor.situation import Situation, Subject
    from verl_env.lock.package import Incoherence
    from verl_env.node.facts import Finding

_MINOR = re.compile(r"libpython(\d+\.\d+)")
# Rules whose finding has an id of its own, since failures name it; the others share one.
_OWN_ID = {"two-cuda-majors": "two-cuda-majors"}
_SHOWN = 8


def check_environment(situation: Situation) -> Iterator[Finding]:
    """Yield what is wrong with the environment in question."""
    subject = situation.subject
    if subject is None:
        yield found("no-environment", "no `current` environment", "`verl-env install` builds one", severity="warning")
        return
    evidence = f"{subject.python}: {subject.error}"
    if subject.late and not situation.deep:
        action = "`verl-env doctor --only environment --deep` waits longer"
        yield found("probe-timed-out", f"environment: {evidence}", action)
    elif subject.error:
        yield found(
            "environment-broken", evidence, "build it again: `verl-env repair`, or `verl-env install`", severity="error"
        )
    yield from _python(subject)
    yield from _torch(situation, subject)
    yield from _coherence(situation, subject)
    yield from _fit(situation, subject)
    if situation.deep:
        yield from _files(subject)


def _python(subject: Subject) -> Iterator[Finding]:
    """Compare the Python with what it was, and with its own shared library."""
    version = subject.answers.get("version")
    if not version:
        return
    if subject.receipt and version != subject.receipt.python:
        evidence = f"{subject.python} is {version}; the environment was built with {subject.receipt.python}"
        yield found(
            "python-changed", evidence, "`verl-env install` builds it with a Python that is there", severity="error"
        )
    if not subject.answers.get("shared"):
        return
    library, folder = subject.answers.get("library", ""), subject.answers.get("libdir", "")
    minor = _MINOR.search(library)
    places = [Path(folder), Path(subject.answers["base"]) / "lib"]
    if minor and not f"{version}.".startswith(f"{minor[1]}."):
        evidence = f"Python {version} names {library} as its library"
        yield found(
            "python-libpython",
            evidence,
            "use a Python whose parts are of one version (`uv python install`)",
            severity="error",
        )
    elif library and not any((place / library).exists() for place in places):
        evidence = f"{library} is not in {' nor in '.join(str(place) for place in dict.fromkeys(places))}"
        yield found("python-libpython", evidence, "have this Python's shared library installed, or use another Python")


def _torch(situation: Situation, subject: Subject) -> Iterator[Finding]:
    """Find a CPU torch on a node with GPUs."""
    version = subject.version_of("torch")
    on_purpose = (
        subject.receipt is not None and "cuda" not in subject.receipt.row and subject.receipt.row.startswith("cpu")
    )
    if version and version.partition("+")[2].startswith("cpu") and situation.node.gpus and not on_purpose:
        evidence = (
            f"torch {version} in {subject.folder}; {situation.node.gpus[0].name} ({situation.node.gpus[0].source})"
        )
        yield found("torch-cpu-on-gpu", evidence, "install a row for this node: `verl-env install`", severity="error")


def _coherence(situation: Situation, subject: Subject) -> Iterator[Finding]:
    """Hold the installed packages against the rules that locks are held against."""
    from verl_env.lock.coherence import find_incoherences

    if not subject.packages:
        return
    machine = situation.node.machine.value if situation.node.machine else os.uname().machine
    version = subject.answers.get("version", "")
    minor = ".".join(version.split(".")[:2]) or None
    facts = situation.matrix.facts if situation.matrix else None
    stack = subject.version_of("torch") is not None
    wrong = find_incoherences(subject.packages, python=minor, machine=machine, facts=facts) if stack else ()
    ours = subject.receipt is not None
    for one in wrong:
        if not (ours and one.rule == "requirement-broken"):  # a row's overrides break requirements on purpose
            yield _incoherent(one, subject)


def _incoherent(one: Incoherence, subject: Subject) -> Finding:
    """Turn a broken rule into a finding."""
    finding_id = _OWN_ID.get(one.rule, "set-incoherent")
    evidence = "; ".join((f"{subject.folder}: {one.rule}", *one.evidence[:_SHOWN]))
    return found(
        finding_id, evidence, one.remedy, severity="error", what=one.what, why=one.why or KNOWN[finding_id].why
    )


def _fit(situation: Situation, subject: Subject) -> Iterator[Finding]:
    """Hold the row that the environment was made from against this node."""
    from verl_env.matrix.fit import fit_row

    receipt, matrix = subject.receipt, situation.matrix
    entry = matrix.entries.get(receipt.row) if receipt and matrix else None
    if receipt is None or matrix is None or entry is None:
        return
    minor = ".".join(receipt.python.split(".")[:2])
    pins = next((it for it in entry.variants(None) if it.python == minor), None)
    fit = fit_row(entry, pins, situation.node, matrix.facts, for_cpu=entry.row.cuda is None)
    if not fit.fits:
        action = "install a row that fits: `verl-env install` (`verl-env matrix explain` says which and why)"
        yield found("row-does-not-fit", f"{entry.id}: {'; '.join(fit.reasons)}", action, severity="error")


def _files(subject: Subject) -> Iterator[Finding]:
    """Compare every file with the manifest; only for an environment of ours."""
    from verl_env.environment.verify import verify_receipt

    if subject.receipt is None:
        return
    try:
        verified = verify_receipt(subject.folder, subject.receipt, deep=False)
    except OSError as err:
        yield found("environment-damaged", str(err), "build it again: `verl-env install`", severity="error")
        return
    if verified.faults:
        shown = [f"{it.kind} {it.path}" for it in verified.faults[:_SHOWN]]
        evidence = f"{len(verified.faults)} files: {', '.join(shown)}"
        yield found(
            "environment-damaged", evidence, "`verl-env repair` makes it new beside the old one", severity="error"
        )
