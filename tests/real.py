"""verl-env with this machine's own settings, index and uv cache, and its environments elsewhere."""

from __future__ import annotations

import os

from tiny import Tool
from verl_env import paths


class RealTool(Tool):
    """`verl-env` as its user on this machine runs it, but for its home."""

    def variables(self, **more):
        kept = {name: value for name, value in os.environ.items() if not name.startswith("VERL_ENV_")}
        search = super().variables()["PYTHONPATH"]
        return {
            **kept,
            "UV_CACHE_DIR": str(paths.uv_cache()),
            "VERL_ENV_HOME": str(self.home),
            "PYTHONPATH": search,
            **more,
        }

    @property
    def data(self):
        """Where environments, logs and links live."""
        return self.home
