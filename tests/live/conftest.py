"""What live tests install once: a CUDA 13 environment, a Ray, and the wheels of a row that is small and whole."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nodes import some_nodes, why_none
from ray_nodes import RayNodes
from repacked import own_wheels
from tiny import Site, Tool, build_wheel
from verl_env import paths, uv

ROW = "verl091-vllm024-cu130"
RAY = "2.60.0"


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


@pytest.fixture(scope="session")
def ray_environment(tmp_path_factory):
    """Return an environment with Ray: the CPU row's that VERL_ENV_TEST_CPU names, or one with little else."""
    if named := os.environ.get("VERL_ENV_TEST_CPU"):
        yield Path(named)
        return
    folder = tmp_path_factory.mktemp("ray") / "environment"
    kept = {**os.environ, "UV_CACHE_DIR": str(paths.uv_cache())}
    for words in (
        ["venv", "--quiet", "--python", sys.executable, folder],
        ["pip", "install", "--quiet", "--python", folder / "bin/python", f"ray[default]=={RAY}"],
    ):
        subprocess.run([uv.executable(), *words], env=kept, check=True)
    yield folder
    subprocess.run(["rm", "-rf", folder], check=True)


@pytest.fixture(scope="session")
def tiny_store(tmp_path_factory):
    """Return a site's matrix with a row of tiny wheels, and a folder of them and of what verl-env needs."""
    folder = tmp_path_factory.mktemp("store")
    site, store = Site(folder=folder / "site"), folder / "wheels"
    named = [
        build_wheel(store, "torch", "2.13.0"),
        build_wheel(store, "verl", "99.0", requires=["torch", "tiny-sub"]),
        build_wheel(store, "tiny-sub", "1.2"),
    ]
    own_wheels(store)
    site.add_row("tiny", named)
    return site.folder, store


@pytest.fixture(scope="session")
def namespaces():
    """Skip what needs nodes where this user cannot make them."""
    if why := why_none():
        pytest.skip(why)


@pytest.fixture(scope="module")
def ray_nodes(namespaces, ray_environment):  # noqa: ARG001 - before anything is installed
    """Return a function that starts Ray on described nodes; they go with the module."""
    with some_nodes(RayNodes, environment=ray_environment) as nodes:

        def start(described):
            nodes.start(described)
            return nodes

        yield start
