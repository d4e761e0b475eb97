"""Every finding that `detect` and `doctor` can make: its title, its area, why it matters, and who can act.

The pages of docs/findings are made from these tables (scripts/make_doctor_docs.py), and a test holds them against the
code. In a request, `{evidence}` is what was seen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from verl_env.doctor.known_build import BUILD
from verl_env.doctor.known_environment import ENVIRONMENT
from verl_env.doctor.known_gpu import GPU
from verl_env.doctor.known_hub import HUGGINGFACE
from verl_env.doctor.known_node import NODE
from verl_env.doctor.known_ray import RAY
from verl_env.doctor.known_room import ROOM
from verl_env.doctor.known_shell import SHELL
from verl_env.node.facts import Finding

if TYPE_CHECKING:
    from verl_env.doctor.kind import Known

AREAS = ("node", "gpu", "room", "shell", "environment", "build", "huggingface", "ray")
KNOWN: dict[str, Known] = {**NODE, **GPU, **ROOM, **SHELL, **ENVIRONMENT, **BUILD, **HUGGINGFACE, **RAY}


def found(
    finding_id: str, evidence: str, action: str, *, severity: str = "warning", what: str = "", why: str = ""
) -> Finding:
    """Make a finding of a known kind, with the value seen and where, and the one action."""
    known = KNOWN[finding_id]
    return Finding(
        id=finding_id,
        severity=severity,
        what=what or known.title,
        evidence=evidence,
        why=why or known.why,
        action=action,
    )
