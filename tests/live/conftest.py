"""A CUDA 13 environment, installed once for the tests that need a real one."""

from __future__ import annotations

import os
import subprocess

import pytest

from tiny import Tool
from verl_env import paths

ROW = "verl091-vllm024-cu130"


class RealTool(Tool):
    """verl-env with this machine's index and cache, and its environments elsewhere; PATH is bare."""

    def variables(self, **more):
        laid = super().variables()
        kept = {name: os.environ[name] for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "HOME") if name in os.environ}
        return {**laid, **kept, "UV_CACHE_DIR": str(paths.uv_cache()), "VERL_ENV_HOME": str(self.home), **more}


@pytest.fixture(scope="session")
def cuda_13(tmp_path_factory):
    """Install the row's packages, proving nothing more than their files."""
    folder = tmp_path_factory.mktemp("real")
    tool = RealTool(home=folder / "home", work=folder)
    done = tool("install", "--row", ROW, "--driver", "580.95.05", "--gpu", "h200", "--level", "files")
    assert 0 == done.code, done.err
    yield tool
    subprocess.run(["rm", "-rf", folder], check=True)
