"""What is known of a step that failed, beside its error: the likeliest cause, and what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verl_env.commands.doctor_log import explain_text

if TYPE_CHECKING:
    from verl_env.errors import VerlEnvError


def explain_failure(err: VerlEnvError) -> None:
    """Add the likeliest explanation of what the failed step wrote; nothing where it is not known."""
    found = explain_text(err.said)
    if found is None:
        return
    err.details += (f"likely: {found.title} ({found.name}, {found.confidence} confidence): {found.cause}",)
    err.hint = found.remedy
    err.data["explanation"] = {"class": found.name, "confidence": found.confidence, "cause": found.cause}
