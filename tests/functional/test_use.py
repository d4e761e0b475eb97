"""`install --no-switch` and `use`: an environment is built and proved first, and becomes current when asked."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tiny import snapshot


def current(tool):
    """Return the name of the environment in use; nothing before the first."""
    return Path(os.readlink(tool.current)).name if tool.current.is_symlink() else ""


@pytest.fixture
def two(tiny, wheels):
    """Return verl-env with one environment in use, and a second that was built without a switch."""
    first = tiny("install", "--cpu", "--json").json["data"]["receipt"]["name"]
    wanted = [wheels["torch"], wheels["verl"], wheels["tiny-sub"]]
    tiny.site.add_row("newer", wanted, set={"verl": "100.0", "torch": "2.13.0"}, imports=("torch",))
    done = tiny("install", "--cpu", "--no-switch", "--json")
    assert 0 == done.code, done.err
    return tiny, first, done.json["data"]["receipt"]["name"]


def test_no_switch_builds_beside_what_is_in_use(two):
    """It is complete and proved, and not current; asked again, it still is not."""
    tool, first, second = two
    assert (first, True) == (current(tool), first != second)
    done = tool("install", "--cpu", "--no-switch")
    assert (0, first) == (done.code, current(tool))
    assert ("is already there:" in done.out, f"verl-env use {second}" in done.out) == (True, True)


def test_no_switch_before_there_is_any(tiny):
    """Nothing is in use before, and nothing after."""
    done = tiny("install", "--cpu", "--no-switch", "--dry-run")
    assert "as it is" in done.out
    assert 0 == tiny("install", "--cpu", "--no-switch").code
    assert (12, "") == (tiny("env").code, current(tiny))


def test_use_switches_and_rollback_leads_back(two):
    """One rename each; a second time nothing changes."""
    tool, first, second = two
    done = tool("use", second, "--json")
    assert (0, first, True) == (done.code, done.json["data"]["before"], done.json["data"]["changed"])
    assert second == current(tool)
    assert not tool("use", second, "--json").json["data"]["changed"]
    assert 0 == tool("rollback").code
    assert first == current(tool)


def test_use_dry_run_moves_nothing(two):
    """It says what it would do."""
    tool, _, second = two
    before = snapshot(tool.home)
    done = tool("use", second, "--dry-run")
    assert (0, True) == (done.code, "would become" in done.out)
    assert before == snapshot(tool.home)


def test_use_refuses_a_damaged_environment(two):
    """A file is gone: refused with its name, and `current` stays."""
    tool, first, second = two
    (gone,) = (tool.data / "environments" / second).glob("lib/python*/site-packages/torch/__init__.py")
    gone.unlink()
    done = tool("use", second)
    assert (6, first) == (done.code, current(tool))
    assert ("torch/__init__.py" in done.err, f"repair {second}" in done.err) == (True, True)


def test_use_refuses_what_is_not_here(two, tmp_path):
    """An unknown name is exit 12; another home's environment is not this home's to use."""
    tool, first, second = two
    assert (12, first) == (tool("use", "nothing").code, current(tool))
    copied = tmp_path / "copied"
    copied.mkdir()
    name = "verl-env-receipt.json"
    (copied / name).write_bytes((tool.data / "environments" / second / name).read_bytes())
    done = tool("use", str(copied))
    assert (2, first) == (done.code, current(tool))
    assert "not one of the environments" in done.err
