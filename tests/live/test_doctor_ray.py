"""`doctor --ray` against real Ray clusters of several local nodes, in the environment of the CPU row."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest

from doctored import ids, in_group, in_mounts, memory_group, of
from tiny import Tool
from verl_env import paths

pytestmark = [pytest.mark.live, pytest.mark.network]
# The head and one more node with little stores; it ends with its stdin.
CLUSTER = """
import sys
from ray.cluster_utils import Cluster
parts = {"num_cpus": 1, "object_store_memory": 80_000_000, "memory": 8_000_000_000, "temp_dir": sys.argv[1] + "/ray"}
cluster = Cluster(initialize_head=True, head_node_args=parts)
cluster.add_node(**parts)
print(cluster.address, flush=True)
sys.stdin.read()
cluster.shutdown()
"""
PATIENT = {"RAY_raylet_start_wait_time_s": "400", "RAY_gcs_server_request_timeout_seconds": "300"}
OTHER_RAY = "2.54.1"


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
def short():
    """Return a folder for Ray with a path short enough for its sockets."""
    folder = tempfile.mkdtemp(prefix="ve-", dir="/tmp")
    yield folder
    end_all(folder)
    shutil.rmtree(folder)


def end_all(folder):
    """End every process that was told to use this folder: nobody else's Ray does."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if folder.encode() in path.read_bytes() and int(path.parent.name) != os.getpid():
                os.kill(int(path.parent.name), signal.SIGKILL)


@contextlib.contextmanager
def cluster(installed, folder, before=()):
    """Start a cluster after some other program's words, and end it by closing its stdin."""
    child = subprocess.Popen(
        [*before, installed / "bin/python", "-c", CLUSTER, folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=os.environ | PATIENT,
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


def test_cluster_of_two_nodes(installed, short):
    """One Ray, one Python and room on every node give no finding; a receipt of another Python patch is a mismatch."""
    twin = Path(short) / "twin"
    twin.mkdir()
    for name in ("bin", "lib", "pyvenv.cfg"):
        (twin / name).symlink_to(installed / name)
    receipt = json.loads((installed / "verl-env-receipt.json").read_text())
    (twin / "verl-env-receipt.json").write_text(json.dumps({**receipt, "python": "3.11.99"}))
    with cluster(installed, short) as address:
        done = doctor(installed, installed, "--ray", address, RAY_TMPDIR=short)
        assert ([], 0) == (done.json["data"]["findings"], done.code)
        assert ["ray-version-mismatch"] == ids(doctor(installed, twin, "--ray", address, RAY_TMPDIR=short))


def test_nodes_that_promise_too_much(installed, short, tmp_path):
    """Stores larger than /dev/shm, memory above the cgroup's, and GPUs that Ray does not have are each named."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler, so no stub of the driver's libraries")
    source = Path(__file__).parents[1] / "functional/nvml_stub/nvml.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", tmp_path / "libnvidia-ml.so.1", source], check=True)
    small = in_mounts("mount -t tmpfs -o size=64m none /dev/shm")
    with memory_group(6_000_000_000) as group, cluster(installed, short, [*in_group(group), *small]) as address:
        words = (installed, "--ray", address)
        done = doctor(installed, *words, RAY_TMPDIR=short, LD_LIBRARY_PATH=str(tmp_path))
    found = {it["id"]: it["evidence"].partition(": ")[2] for it in done.json["data"]["findings"]}
    assert {
        "ray-object-store": "object store 80.0 MB, /dev/shm 67.1 MB",
        "ray-memory-limit": "Ray counts 8.0 GB, the cgroup allows 6.0 GB",
        "ray-gpus-missing": "Ray has 0 GPUs, NVML shows 1",
    } == found


@pytest.fixture
def other_ray(installed, tmp_path):
    """Return the `ray` of another release, on the same Python."""
    kept = {**os.environ, "UV_CACHE_DIR": str(paths.uv_cache())}
    for words in (
        ["venv", "--quiet", "--python", os.path.realpath(installed / "bin/python"), tmp_path / "other"],
        ["pip", "install", "--quiet", "--python", tmp_path / "other/bin/python", f"ray[default]=={OTHER_RAY}"],
    ):
        subprocess.run(["uv", *words], env=kept, check=True)
    return tmp_path / "other/bin/ray"


def test_other_ray_and_what_is_left_of_it(installed, other_ray, short):
    """A head of another Ray is a mismatch; once it was killed, what Ray remembers of it is stale."""
    words = ["start", "--head", "--port=0", "--num-cpus=1", "--object-store-memory=80000000"]
    variables = os.environ | PATIENT | {"RAY_TMPDIR": short}
    subprocess.run([other_ray, *words, "--include-dashboard=false"], env=variables, check=True, capture_output=True)
    remembered = Path(short) / "ray/ray_current_cluster"
    done = doctor(installed, installed, "--ray", RAY_TMPDIR=short)
    finding = of(done, "ray-version-mismatch")
    assert f"the head: Ray {OTHER_RAY}" in finding["evidence"]
    assert ["ray-version-mismatch"] == ids(done)
    end_all(short)
    done = doctor(installed, installed, RAY_TMPDIR=short)
    assert of(done, "ray-stale-session")["evidence"].startswith(f"{remembered} says {remembered.read_text()}: ")
