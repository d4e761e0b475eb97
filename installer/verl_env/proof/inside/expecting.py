"""What every check uses: how it fails, how it says that there is nothing to show here, and names that moved."""

from __future__ import annotations

import importlib


class CheckError(Exception):
    """Something answered, and not what it should have."""


class Skip(Exception):  # noqa: N818 - no error: nothing to show here, and why
    """There is nothing to show here; the message says why."""


def expect(expected: object, actual: object, what: str) -> None:
    """Fail the check when a value is not the expected one."""
    if expected != actual:
        raise CheckError(f"{what}: expected {expected!r}, got {actual!r}")


def expect_near(reference, actual, limit: float, what: str) -> float:
    """Fail when a tensor is further from the reference than `limit`, relative to it; return how far it is.

    The reference is in float64 on the CPU. A NaN is never near.
    """
    distance = actual.detach().to("cpu").double() - reference
    error = float(distance.norm() / reference.norm())
    if not error < limit:
        raise CheckError(f"{what}: relative error {error:.2g}, and {limit:g} is allowed")
    return error


def first_attribute(*candidates: str):
    """Return the first `module:name` that exists; its name has moved between releases."""
    tried = []
    for candidate in candidates:
        module, name = candidate.split(":")
        try:
            return getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError) as err:
            tried.append(f"{candidate} ({type(err).__name__}: {err})")
    raise ImportError("none of these exists: " + "; ".join(tried))
