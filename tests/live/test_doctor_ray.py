"""`doctor --ray` against a real Ray cluster of several local nodes, in the environment of the CPU row."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tiny import Tool
from verl_env import paths

pytestmark = [pytest.mark.live, pytest.mark.network]
# The head and one more node with little stores; it ends with its stdin.
CLUSTER = """
import sys
from ray.cluster_utils import Cluster
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": 80_000_000})
cluster.add_node(num_cpus=1, object_store_memory=80_000_000)
print(cluster.address, flush=True)
sys.stdin.read()
cluster.shutdown()
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Return the CPU row's environment: the one that VERL_ENV_TEST_CPU names, or one that is installed now."""
    if named := os.environ.get("VERL_ENV_TEST_CPU"):
        yield Path(named)
        return
    folder = tmp_path_factory.mktemp("ray")
    tool = Tool(home=folder / "home", work=folder)
    variables = {"VERL_ENV_HOME": str(folder / "home"), "UV_CACHE_DIR": str(paths.uv_cache())}
    kept = {name: value for name, value in os.environ.items() if not name.startswith("VERL_ENV_")}
    done = tool("install", "--row", "cpu", "--cpu", "--json", **kept | variables)
    assert 0 == done.code, done.err
    yield Path(done.json["data"]["receipt"]["exports"][0]["value"])
    subprocess.run(["rm", "-rf", folder], check=True)


@pytest.fixture
def cluster(installed):
    """Start a cluster, and end it by closing its stdin."""
    patient = {"RAY_raylet_start_wait_time_s": "400", "RAY_gcs_server_request_timeout_seconds": "300"}
    child = subprocess.Popen(
        [installed / "bin/python", "-c", CLUSTER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=os.environ | patient,
        text=True,
    )
    try:
        yield child.stdout.readline().strip()
    finally:
        child.communicate("")


def doctor(installed, *words, **variables):
    """Run doctor on that environment."""
    tool = Tool(home=installed.parent, work=installed.parent)
    return tool("doctor", "--json", "--only", "ray", *words, **variables)


def test_cluster_of_two_nodes(installed, cluster):
    """Every node is looked at, and one Ray, one Python and room give no finding."""
    done = doctor(installed, installed, "--ray", cluster, RAY_TMPDIR="/tmp")
    assert ([], 0) == (done.json["data"]["findings"], done.code)


def test_other_python_than_the_clusters(installed, cluster, tmp_path):
    """An environment whose receipt has another Python patch than the cluster is a mismatch."""
    twin = tmp_path / "twin"
    twin.mkdir()
    for name in ("bin", "lib", "pyvenv.cfg"):
        (twin / name).symlink_to(installed / name)
    receipt = json.loads((installed / "verl-env-receipt.json").read_text())
    (twin / "verl-env-receipt.json").write_text(json.dumps({**receipt, "python": "3.11.99"}))
    done = doctor(installed, twin, "--ray", cluster, RAY_TMPDIR="/tmp")
    assert "ray-version-mismatch" in [finding["id"] for finding in done.json["data"]["findings"]]
