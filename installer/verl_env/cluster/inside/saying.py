"""How the driver in Ray's environment answers: lines of JSON on stdout."""

from __future__ import annotations

import json
from typing import Any


def say(**values: Any) -> None:
    """Print values at once."""
    print(json.dumps(values), flush=True)


def short(err: Exception) -> str:
    """Return an error in one line: of Ray's, its cause."""
    cause = getattr(err, "cause", None) or err
    return f"{type(cause).__name__}: {' '.join(str(cause).split())}"[:400]
