"""The row that `install` chooses on a machine with no GPU, for real: gigabytes, from the index that is set up here."""

from __future__ import annotations

import os
import subprocess

import pytest

from real import RealTool

pytestmark = [pytest.mark.live, pytest.mark.network]
CHECK = "import torch, ray, transformers, tensordict, verl, verl.trainer.main_ppo; print(verl.__version__, torch.__version__)"


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Install it with this machine's own settings and uv cache, into a home of its own; return what was said."""
    folder = tmp_path_factory.mktemp("real")
    tool = RealTool(home=folder / "home", work=folder)
    done = tool("install", "--cpu", "--json")
    assert 0 == done.code, done.err
    yield tool, done.json["data"]
    subprocess.run(["rm", "-rf", folder], check=True)


def test_every_import_was_proved(installed):
    """A CPU row, proved by imports, on no device."""
    _, data = installed
    receipt = data["receipt"]
    assert receipt["row"].startswith("cpu")
    assert ("none", True) == (receipt["device"], receipt["level"] in ("imports", "behaviour"))
    shown = {it["name"] for it in receipt["shown"]}
    assert {"torch", "ray", "transformers", "tensordict", "verl", "verl.trainer.main_ppo"} <= shown


def test_it_works_as_people_use_it(installed):
    """`run -- python` imports the set together, in one process."""
    tool, data = installed
    done = tool("run", "--", "python", "-c", CHECK)
    assert 0 == done.code, done.err
    assert data["receipt"]["title"].split()[1] == done.out.split()[0]


def test_again_says_what_is_there(installed):
    """A second run changes nothing."""
    tool, data = installed
    done = tool("install", "--cpu", "--json")
    assert (0, False, data["folder"]) == (done.code, done.json["data"]["changed"], done.json["data"]["folder"])


def test_its_lock_is_the_one_that_lock_writes(installed, tmp_path):
    """The lock inside the environment installs the same environment."""
    tool, data = installed
    (path,) = (tmp_path / it for it in os.listdir(data["folder"]) if it.startswith("pylock."))
    done = tool("install", f"{data['folder']}/{path.name}", "--json")
    assert (0, data["folder"]) == (done.code, done.json["data"]["folder"]), done.err
