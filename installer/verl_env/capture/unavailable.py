"""A package that cannot be had, and why. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Unavailable:
    """A package that cannot be had: `reason` is a stable word, `what` says it, `remedy` what would do."""

    name: str
    version: str | None
    reason: str
    what: str
    remedy: str = ""


def absent(name: str, version: str, cause: str) -> Unavailable:
    """Say why a release is not there: gone, never there, or served by another index."""
    label = version.partition("+")[2]
    if label and re.fullmatch(r"cpu|cu[0-9]+", label):
        reason, remedy = "another-index", f"name the index of its {label} builds: VERL_ENV_INDEX_…, or --index URL"
    elif re.match(r"(cu|pt)?[0-9]+.*(torch|pt)[0-9]", label):
        reason = "published-elsewhere"
        remedy = "fetch that wheel from its project's releases, and set UV_FIND_LINKS to its folder"
    elif label:
        reason, remedy = "own-build", "it was built by someone: ask for the wheel, and set UV_FIND_LINKS to its folder"
    elif "not found in the package registry" in cause or "not found in the provided" in cause:
        reason, remedy = "not-on-index", "name the index that has it: --index URL"
    elif "no version of" in cause:
        reason, remedy = "gone", "take a version that is there, or a wheel that someone kept (UV_FIND_LINKS)"
    elif "no wheels with a matching" in cause:
        reason, remedy = "no-wheel", "name an index or a folder that has a wheel: --index URL, UV_FIND_LINKS=DIR"
    else:
        reason, remedy = "unreachable", "see that the index is in reach"
    what = (
        f"{name} {version}: {cause}"
        if reason == "unreachable"
        else {
            "another-index": f"{name} {version} is not on the default index",
            "published-elsewhere": f"{name} {version} is not on this index: such builds are published by their project",
            "own-build": f"{name} {version} is someone's own build",
            "not-on-index": f"{name} is not on this index",
            "no-wheel": f"{name} {version} is on the index with no wheel for this Python",
            "gone": f"{name} has no version {version} on this index",
        }[reason]
    )
    return Unavailable(name=name, version=version, reason=reason, what=what, remedy=remedy)
