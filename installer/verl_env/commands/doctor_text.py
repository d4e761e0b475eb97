"""Findings as text for people. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verl_env.doctor.known import KNOWN
from verl_env.doctor.redact import without_secrets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from verl_env.doctor.situation import Situation
    from verl_env.node.facts import Finding


def render(findings: list[Finding], situation: Situation, areas: list[str], *, strong: Callable[[str], str]) -> str:
    """Return every finding with evidence, reason and action; or that nothing was found, and where was looked."""
    looked = f"looked at: {', '.join(areas)}"
    subject = situation.subject
    if subject:
        version = subject.answers.get("version")
        looked += f"; environment {subject.folder}{f' (Python {version})' if version else ''}"
    if not findings:
        return f"nothing found\n{looked}"
    blocks = ["\n".join(_lines(finding, strong)) for finding in findings]
    errors = sum(finding.severity == "error" for finding in findings)
    warnings = len(findings) - errors
    counts = ", ".join(
        f"{number} {word}{'s' if number > 1 else ''}"
        for number, word in ((errors, "error"), (warnings, "warning"))
        if number
    )
    return "\n\n".join([*blocks, f"{counts}\n{looked}"])


def _lines(finding: Finding, strong: Callable[[str], str]) -> Iterator[str]:
    """Yield one finding."""
    evidence = without_secrets(finding.evidence)
    yield strong(f"{finding.severity}: {finding.what}") + f" ({finding.id})"
    yield f"  seen  {evidence}"
    yield f"  why   {finding.why}"
    yield f"  do    {finding.action}"
    known = KNOWN.get(finding.id)
    if known and known.request:
        yield f"  send  {known.request.replace('{evidence}', evidence)}"
