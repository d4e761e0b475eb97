"""Every area at the same time, each with its own end: what hangs costs one area, and not the answer."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from verl_env.doctor.known import AREAS, KNOWN, found
from verl_env.node.later import Later

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from verl_env.doctor.situation import Situation
    from verl_env.node.facts import Finding

    Check = Callable[[Situation], Iterator[Finding]]

_SEVERITIES = ("error", "warning")


def checks() -> dict[str, Check]:
    """Return the check of each area, in the order in which findings are shown."""
    from verl_env.doctor.check_build import check_build
    from verl_env.doctor.check_environment import check_environment
    from verl_env.doctor.check_gpu import check_gpu
    from verl_env.doctor.check_hub import check_hub
    from verl_env.doctor.check_ray import check_ray
    from verl_env.doctor.check_room import check_room
    from verl_env.doctor.check_shell import check_shell

    return {
        "node": lambda situation: iter(situation.node.findings),
        "gpu": check_gpu,
        "room": check_room,
        "shell": check_shell,
        "environment": check_environment,
        "build": check_build,
        "huggingface": check_hub,
        "ray": check_ray,
    }


def look(
    situation: Situation, areas: Iterable[str], *, until: float, asked_for: Iterable[tuple[str, Check]] = ()
) -> list[Finding]:
    """Run the checks of some areas together, up to a moment of time.monotonic(); worst first, then in their order.

    `asked_for` are checks of what the user named, each with its area.
    """
    wanted = set(areas)
    chosen = [*((name, check) for name, check in checks().items() if name in wanted), *asked_for]
    started = [(name, Later(partial(_listed, check, situation))) for name, check in chosen]
    findings = [finding for name, later in started for finding in _get(name, later, until)]
    return in_order(findings)


def _get(name: str, later: Later[list[Finding]], until: float) -> list[Finding]:
    """Return an area's findings, or one that says why there are none."""
    try:
        return later.get(max(0.01, until - time.monotonic()))
    except TimeoutError:
        return [timed_out(name)]
    except Exception as err:  # noqa: BLE001 - one area's fault must not cost the others' answers
        evidence = f"{name}: {type(err).__name__}: {err}"
        return [found("probe-failed", evidence, "report it, with the output of `verl-env doctor -v`")]


def _listed(check: Check, situation: Situation) -> list[Finding]:
    return list(check(situation))


def in_haste(finding: Finding) -> Finding:
    """Take back that something hangs: within a second that is only late, as a driver without persistence mode is."""
    if not finding.id.endswith("-hung"):
        return finding
    action = "`verl-env doctor --only node --deep` waits longer, and says whether it hangs"
    return found("probe-timed-out", finding.evidence, action)


def timed_out(area: str) -> Finding:
    """Say that an area gave no answer in time."""
    evidence = f"{area}: a file system, driver or server did not answer in time"
    return found("probe-timed-out", evidence, f"`verl-env doctor --only {area} --deep` waits longer")


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """Return each finding once, errors first, and within a severity by area."""
    unique = list(dict.fromkeys(findings))
    place = {name: number for number, name in enumerate(AREAS)}

    def rank(finding: Finding) -> tuple[int, int]:
        area = KNOWN[finding.id].area if finding.id in KNOWN else AREAS[-1]
        return _SEVERITIES.index(finding.severity) if finding.severity in _SEVERITIES else len(_SEVERITIES), place[area]

    return sorted(unique, key=rank)
