"""What others say of the same environment: torch's and vLLM's collectors held against `detect` and the lock.

docs/peers.md explains where they differ.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from verl_env import uv
from verl_env.lock.read import read_lock

pytestmark = [pytest.mark.live, pytest.mark.network]


@pytest.fixture(scope="module")
def lock(cuda_13):
    """Return the lock that the environment was made from."""
    (path,) = (cuda_13.home / "current").glob("pylock.*.toml")
    return read_lock(path)


@pytest.fixture(scope="module")
def node(cuda_13):
    """Return what `detect` says of this machine."""
    return cuda_13("detect", "--json").json["data"]


@pytest.fixture(scope="module", params=["torch.utils.collect_env", "vllm.collect_env"])
def said(request, cuda_13):
    """Return what a collector prints, by its labels; uv is on PATH, since vLLM's asks it for the packages."""
    search = os.pathsep.join(["/usr/bin", "/bin", str(Path(uv.executable()).parent)])
    done = cuda_13("run", "--", "python", "-m", request.param, PATH=search)
    assert 0 == done.code, done.out + done.err
    lines = re.findall(r"^([^\n:\[]+?)\s*: (.*)$", done.out, flags=re.MULTILINE)
    return {**dict(lines), "pins": re.findall(r"^\[pip3\] (\S+)==(\S+)$", done.out, flags=re.MULTILINE)}


def test_the_machine(said, node):
    """Distribution, glibc, driver and GPUs are what `detect` says."""
    assert said["OS"].startswith(node["distribution"]["value"])
    assert f"glibc-{node['glibc']['value']}" == said["Libc version"]
    driver = node["driver"]
    assert (driver["version"] if driver else "Could not collect") == said["Nvidia driver version"]


def test_the_set(said, lock, cuda_13):
    """Python, torch and its CUDA are the lock's, and the nvcc that is found is CUDA_HOME's, not the runtime."""
    pins = {pin.name: pin.version for pin in lock.pins}
    python = cuda_13("env", "--json").json["data"]
    assert said["Python version"].startswith(f"{lock.table.python}.")
    assert pins["torch"].partition("+")[0] == said["PyTorch version"].partition("+")[0]
    assert lock.table.cuda == said["CUDA used to build PyTorch"]
    assert pins["nvidia-cuda-nvcc"] == said["CUDA runtime version"]
    assert python["values"]["CUDA_HOME"].endswith("/cuda")


def test_the_packages(said, lock):
    """Every package that a collector lists is a pin of the lock, at its version; torch's lists none without pip."""
    pins = {pin.name: pin.version for pin in lock.pins}
    assert [] == [(name, version) for name, version in said["pins"] if pins.get(name) != version]
    if "vLLM Version" in said:
        assert pins["vllm"] == said["vLLM Version"]
        assert {"torch", "triton", "transformers", "nvidia-cuda-nvcc"} <= {name for name, _ in said["pins"]}
    else:
        assert [] == said["pins"]
