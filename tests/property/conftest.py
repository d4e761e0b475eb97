"""Property tests never depend on how fast or busy the machine is; HYPOTHESIS_EXAMPLES=2000 looks longer."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "any-machine",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    max_examples=int(os.environ.get("HYPOTHESIS_EXAMPLES", "100")),
)
settings.load_profile("any-machine")
