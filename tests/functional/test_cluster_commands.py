"""`cluster` where no cluster is: every way in that is barred says so, and nothing is written."""

from __future__ import annotations

import pytest

from tiny import snapshot


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        pytest.param(["check", "--on", "pbs"], 2, "no engine that carries things", id="an unknown engine"),
        pytest.param(["check", "--on", "slurm"], 14, "SLURM_JOB_ID is not set", id="outside an allocation"),
        pytest.param(["check"], 14, "no Python with Ray is known here", id="no Ray"),
        pytest.param(["install", "--row", "no-such-row"], 2, "no row is called", id="an unknown row"),
        pytest.param(["install", "a.toml", "--row", "tiny"], 2, "both a lockfile and --row", id="two wishes"),
        pytest.param(["install", "nowhere.toml"], 10, "nowhere.toml", id="no lockfile"),
        pytest.param(
            ["install", "--ray-python", "/nonexistent"], 14, "`/nonexistent` cannot be started", id="no such Python"
        ),
    ],
)
def test_a_barred_way_is_named(tiny, words, code, said):
    """Exit code and reason; the home stays as it was."""
    before = snapshot(tiny.home)
    done = tiny("cluster", *words)
    assert (code, True) == (done.code, said in done.err), done.err
    assert before == snapshot(tiny.home)


def test_a_ray_that_is_none(tiny, tmp_path):
    """A Python without Ray is named with what it said."""
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 'No module named ray' >&2\nexit 1\n")
    python.chmod(0o755)
    done = tiny("cluster", "check", "--on", "ray:127.0.0.1:1", "--ray-python", str(python), "--json")
    error = done.json["errors"][0]
    assert (14, "engine", True) == (done.code, error["code"], "No module named ray" in "".join(error["details"]))


def test_bootstrap_needs_a_ray_in_the_lock(tiny):
    """A set without Ray has none to start a cluster with: exit 10, and where to turn."""
    done = tiny("cluster", "bootstrap", "--cpu")
    assert (10, True) == (done.code, "has no Ray" in done.err)


def test_the_ray_hand_over_wants_its_form(two_words, tiny):
    """--on goes with --format ray only."""
    done = tiny("env", *two_words)
    assert (2, True) == (done.code, "--format ray" in done.err)


@pytest.fixture(params=[["--on", "ray:h:1"], ["--format", "ray", "--on", "slurm"]], ids=" ".join)
def two_words(request, tiny):
    """Return words that do not go together, for an environment that is there."""
    assert 0 == tiny("install", "--cpu").code
    return request.param
