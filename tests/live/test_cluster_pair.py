"""One environment on the two nodes of a Ray cluster: what `.ci/run` shows of `cluster check` and `cluster install`."""

from __future__ import annotations

import os

import pytest

pytestmark = [pytest.mark.live, pytest.mark.network]
INSTALL = ("cluster", "install", "--row", "tiny", "--cpu", "--json")


@pytest.fixture(scope="module")
def pair(ray_nodes, tiny_store):
    """Return two nodes, an index that counts in reach of both, and a matrix on the head only."""
    nodes = ray_nodes({"one": {}, "two": {}})
    site, store = tiny_store
    nodes.nodes["one"].described["VERL_ENV_MATRIX"] = str(site)
    with nodes.serving(store):
        yield nodes


@pytest.fixture(scope="module")
def installed(pair):
    """Install on both."""
    done = pair(*INSTALL)
    assert 0 == done.code, done.err
    return done.json["data"]


def test_both_have_what_was_proved(pair, installed):
    """Both prove it and switch to the same digest, at the same path."""
    assert [("one", "switched", "imports"), ("two", "switched", "imports")] == [
        (it["name"], it["stage"], it["proof"]) for it in installed["nodes"]
    ]
    (name,) = {it["environment"] for it in installed["nodes"]}
    assert {f"environments/{name}"} == {os.readlink(pair.disk(it) / "current") for it in ("one", "two")}
    for it in ("one", "two"):
        done = pair.on(it, pair.home / "current/bin/python", "-c", "import torch, verl; print(verl.__version__)")
        assert (0, "99.0\n") == (done.code, done.out), done.err


def test_each_wheel_was_asked_for_once(pair, installed, tiny_store):
    """However many nodes there are, the index sends each wheel of the row, and of verl-env, once."""
    counted = pair.counted()
    assert {1} == {it["requests"] for it in counted.values()}
    assert {"torch-2.13.0-py3-none-any.whl", "verl-99.0-py3-none-any.whl"} <= set(counted)
    assert installed["nodes"][1]["carried_bytes"] > sum((tiny_store[1] / it).stat().st_size for it in counted)


def test_check_says_what_both_have(pair, installed):
    """The nodes differ in nothing, and both have the environment."""
    done = pair("cluster", "check", "--cpu", "--json")
    assert 0 == done.code, done.out
    data = done.json["data"]
    assert ([], ["one", "two"]) == (data["differences"], data["row"]["nodes"])
    assert {installed["digest"]} == {it["digest"] for it in data["nodes"]}


def test_again_changes_nothing(pair, installed):
    """A second run finds everything there, carries nothing and asks the index for nothing."""
    before = pair.counted()
    done = pair(*INSTALL)
    assert 0 == done.code, done.err
    data = done.json["data"]
    assert [(True, 0), (True, 0)] == [(it["there_before"], it["carried_bytes"]) for it in data["nodes"]]
    assert (installed["digest"], before) == (data["digest"], pair.counted())
