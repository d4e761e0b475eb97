"""From sightings to explanations: the first cause before its consequences, `not known` rather than a guess. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from verl_env.doctor.failures import CONFIDENCES
from verl_env.doctor.log_text import INFO, WARNING

if TYPE_CHECKING:
    from verl_env.doctor.failures import Catalogue
    from verl_env.doctor.log_scan import Scan, Sighting

_SHOWN = 3
_HIGH, _MEDIUM, _LOW = range(3)
_PLACEHOLDER = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One line of evidence: its number in the log, which worker said it, and its text."""

    line: int
    worker: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """One class that explains the log. `times` counts its lines; `node` says what this node's facts make of it."""

    name: str
    title: str
    cause: str
    confidence: str
    evidence: tuple[Seen, ...]
    remedy: str
    signature: str
    source: str
    times: int
    symptom: bool
    groups: dict[str, str]
    node: str = ""


def explain(scan: Scan, catalogue: Catalogue) -> tuple[Explanation, ...]:
    """Return what explains the log, likeliest first: surer before less sure, and of equals the earlier one.

    A symptom that has a cause beside it comes after every cause.
    """
    by_class: dict[str, list[Sighting]] = {}
    for sighting in scan.sightings:
        by_class.setdefault(sighting.signature.explains, []).append(sighting)
    order = {name: number for number, name in enumerate(catalogue.failures)}
    ranked = sorted(
        (min(_rank(it, failed=scan.failed) for it in found), order[name], name) for name, found in by_class.items()
    )
    return tuple(_explanation(by_class[name], catalogue, failed=scan.failed) for *_, name in ranked)


def _sureness(sighting: Sighting, *, failed: bool) -> int:
    """Return how sure one sighting is: a warning counts a step less, and two where nothing failed."""
    sure = CONFIDENCES.index(sighting.signature.confidence)
    if not sighting.signature.any_level:
        if sighting.line.level == WARNING:
            sure += 1 if failed else 2
        elif sighting.line.level == INFO:
            sure += 2
    return min(sure, _LOW)


def _rank(sighting: Sighting, *, failed: bool) -> tuple[int, int, int]:
    """Order sightings: what is only likely to follow from something else, then sureness, then place."""
    sure = _sureness(sighting, failed=failed)
    return (1 if sighting.signature.symptom or sure == _LOW else 0, sure, sighting.number)


def _explanation(found: list[Sighting], catalogue: Catalogue, *, failed: bool) -> Explanation:
    """Tell one class by its best sighting."""
    best = min(found, key=lambda it: _rank(it, failed=failed))
    failure = catalogue.failures[best.signature.explains]
    shown = [best, *(it for it in found if it.number > best.number and it.line.text != best.line.text)][:_SHOWN]
    return Explanation(
        name=best.signature.explains,
        title=failure.title,
        cause=_filled(best.signature.cause or failure.cause, best.groups),
        confidence=CONFIDENCES[_sureness(best, failed=failed)],
        evidence=tuple(Seen(line=it.number, worker=it.line.worker, text=it.line.text) for it in shown),
        remedy=_filled(best.signature.remedy or failure.remedy, best.groups),
        signature=best.signature.id,
        source=best.signature.source,
        times=len({it.number for it in found}),
        symptom=best.signature.symptom,
        groups=best.groups,
    )


def _filled(text: str, groups: dict[str, str]) -> str:
    """Put what the pattern caught into a sentence; what it did not catch is left out in words."""
    return _PLACEHOLDER.sub(lambda found: groups.get(found[1]) or "that", text)


def surer(one: Explanation, note: str) -> Explanation:
    """Return it with a note of the node that confirms it."""
    step = max(_HIGH, CONFIDENCES.index(one.confidence) - 1)
    return replace(one, node=note, confidence=CONFIDENCES[step])


def less_sure(one: Explanation, note: str) -> Explanation:
    """Return it with a note of the node that speaks against it."""
    step = min(_LOW, CONFIDENCES.index(one.confidence) + 1)
    return replace(one, node=note, confidence=CONFIDENCES[step])
