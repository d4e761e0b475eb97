"""A teammate's CUDA 13 environment, edited and added to, comes back elsewhere: gigabytes, no GPU needed."""

from __future__ import annotations

import os
import subprocess

import pytest

from real import RealTool
from teammate import add, edit, site_of

pytestmark = [pytest.mark.live, pytest.mark.network]
NODE = ("--driver", "580.95.05", "--gpu", "h200")
ROW = ("--row", "verl091-vllm024-cu130", "--python", "3.12", *NODE, "--level", "files")
NEW_FILE = "vllm/v1/worker/gpu_worker.py"  # edited as some editors do: another file takes its name
IN_PLACE = "vllm/v1/worker/worker_base.py"  # and as others do


def tool_at(folder, name) -> RealTool:
    """Return verl-env with a home of its own."""
    (folder / name).mkdir()
    return RealTool(home=folder / name, work=folder)


@pytest.fixture(scope="module")
def teammate(tmp_path_factory):
    """Install the row twice from one cache; edit the first in both ways, and add a package to it."""
    folder = tmp_path_factory.mktemp("round-trip")
    tools = [tool_at(folder, name) for name in ("first", "second")]
    for tool in tools:
        done = tool("install", *ROW)
        assert 0 == done.code, done.err
    site = site_of(tools[0].current.resolve())
    edit(site / NEW_FILE, (site / NEW_FILE).read_text() + "\nPATCHED = True\n")
    with (site / IN_PLACE).open("a") as stream:
        stream.write("\nPATCHED = True\n")
    add(tools[0].current.resolve(), tools[0], "colorlog==6.9.0")
    yield tools, folder
    subprocess.run(["rm", "-rf", folder], check=True)


def captured(tool, folder, name, *words):
    """Capture the teammate's environment; return the lock's path."""
    path = folder / f"pylock.{name}.toml"
    done = tool("capture", tool.current.resolve(), *words, "-o", path, "--json")
    assert 0 == done.code, done.err
    edited = [it["path"] for it in done.json["data"]["condition"]["files"] if it["state"] == "edited"]
    assert ([NEW_FILE, IN_PLACE], "verl091-vllm024-cu130") == (edited, done.json["data"]["nearest"])
    return path


@pytest.mark.parametrize(
    ("name", "words", "left"),
    [
        pytest.param("plain", (), [f"vllm: {NEW_FILE}", f"vllm: {IN_PLACE}"], id="without the patch"),
        pytest.param("patched", ("--with-patches",), [], id="with the patch"),
    ],
)
def test_installed_elsewhere(teammate, name, words, left):
    """Nothing differs but the patch; with it, nothing does; and the lock is what would be written."""
    (first, _), folder = teammate
    path = captured(first, folder, name, *words)
    assert 0 == first("lock", "--check", path).code
    other = tool_at(folder, name)
    done = other("install", path, *NODE, "--level", "files")
    assert 0 == done.code, done.err
    found = other("diff", first.current.resolve(), other.current.resolve(), "--json")
    assert left == [it["name"] for it in found.json["data"]["differences"]]
    assert 0 == other("verify", "--deep").code
    subprocess.run(["rm", "-rf", other.home], check=True)


def test_the_other_environment_of_the_cache_is_untouched(teammate):
    """It shares files with the edited one by hard links; none of its own has changed."""
    (first, second), _ = teammate
    shared = "vllm/_C_stable_libtorch.abi3.so"
    inodes = {os.stat(site_of(it.current.resolve()) / shared).st_ino for it in (first, second)}
    assert 1 == len(inodes)
    done = second("verify", "--deep")
    assert 0 == done.code, done.out
