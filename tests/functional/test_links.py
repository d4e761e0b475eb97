"""What the copies between GPUs say of links and pairs: NVML's words, in CUDA's order of the GPUs."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from tiny import ROOT

INSIDE = ROOT / "installer/verl_env/proof/inside"
# Two GPUs, which CUDA counts the other way round than NVML.
LIBCUDA = """
#include <stdio.h>
int cuInit(unsigned flags) { return flags; }
int cuDeviceGetCount(int *count) { *count = 2; return 0; }
int cuDeviceGet(int *device, int index) { *device = index; return 0; }
int cuDeviceGetPCIBusId(char *to, int size, int device) { snprintf(to, size, "0000:%02x:00.0", device ? 6 : 7); return 0; }
"""
NVML = """
class NVMLError(Exception):
    pass

def nvmlInit():
    pass

def nvmlDeviceGetHandleByPciBusId(bus):
    return {b"0000:06:00.0": "six", b"0000:07:00.0": "seven"}[bus]

def nvmlDeviceGetNvLinkState(handle, link):
    if link >= (4 if handle == "six" else 18):
        raise NVMLError("no such link")
    return int(not (handle == "six" and link == 2))

def nvmlDeviceGetP2PStatus(one, other, index):
    assert index == 0
    return %(status)s
"""


@pytest.mark.parametrize(
    ("status", "word"),
    [pytest.param("0", "OK", id="they reach each other"), pytest.param("4", "disabled", id="they do not")],
)
def test_links_and_pairs(tmp_path, status, word):
    """Links that are up and down, by GPU; the state of the pair."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler, so no stub of libcuda")
    (tmp_path / "cuda.c").write_text(LIBCUDA)
    words = [compiler, "-shared", "-fPIC", "-o", tmp_path / "libcuda.so.1", tmp_path / "cuda.c"]
    subprocess.run(words, check=True)
    nvml = tmp_path / "pynvml_of_the_tool.py"
    nvml.write_text(NVML % {"status": status})
    program = (
        f"import sys; sys.path.insert(0, {str(INSIDE)!r}); import links; print(links.describe_links({str(nvml)!r}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"LD_LIBRARY_PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    links = "NVLinks GPU 0: 18 of 18 up, GPU 1: 3 of 4 up (down: 2)"
    assert f"{links}; P2P read by NVML 0-1 {word}" == done.stdout.strip()
