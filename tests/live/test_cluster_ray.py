"""`cluster check` and `cluster install` on four nodes of Ray, and what becomes of them when nodes fall away half-way."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys

import pytest

from tiny import ROOT, Done

pytestmark = [pytest.mark.live, pytest.mark.network]
NODES = ("n1", "n2", "n3", "n4")
GPU = {"VERL_ENV_GPU": "8xh200", "VERL_ENV_DRIVER": "580.95.05"}
ODD = "470.182.03"
INSTALL = ("cluster", "install", "--row", "tiny", "--cpu", "--json")
SENT_BYTES = 200_000_000
# Run where the head is: the engine alone, a line for all that it tells.
SEND = """
import json, sys
from pathlib import Path
from verl_env.cluster.ray import RayEngine
engine = RayEngine(None, sys.argv[3])
try:
    told = lambda name, count: print(name, count, flush=True)
    print(json.dumps(engine.send(engine.members(), Path(sys.argv[1]), sys.argv[2], told=told)))
finally:
    engine.close()
"""


@pytest.fixture(scope="module")
def started(ray_nodes, tiny_store):
    """Start four nodes, of which `n3` has an old driver; the head has the matrix."""
    described = {name: dict(GPU) for name in NODES}
    described["n3"]["VERL_ENV_DRIVER"] = ODD
    described["n1"]["VERL_ENV_MATRIX"] = str(tiny_store[0])
    return ray_nodes(described)


@pytest.fixture
def four(started):
    """Return them, all there and with nothing on their disks."""
    for name in sorted(set(NODES) - started.alive()):
        started.add_node(name)
    for name in NODES:
        started.wipe(name)
    return started


def told_until(child, pattern, stream):
    """Read what a program says up to a line that matches, and return those lines."""
    lines = []
    for line in stream:
        lines.append(line)
        if re.search(pattern, line):
            return lines
    raise AssertionError(f"it ended with {child.wait()} before {pattern}: {''.join(lines)}")


def finish(child) -> Done:
    """Wait for a program of which part was read."""
    out, err = child.communicate()
    return Done(child.returncode, out, err)


def test_check_finds_the_odd_one(four):
    """One node's driver is too old for what fits the others: it is named, with the reason, and the exit code is 8."""
    done = four("cluster", "check", "--json")
    data = done.json["data"]
    assert (8, list(NODES)) == (done.code, [it["name"] for it in data["nodes"]])
    assert [
        {
            "what": "driver",
            "values": [
                {"value": GPU["VERL_ENV_DRIVER"], "nodes": ["n1", "n2", "n4"]},
                {"value": ODD, "nodes": ["n3"]},
            ],
        }
    ] == data["differences"]
    assert ["n1", "n2", "n4"] == data["row"]["nodes"]
    (left_out,) = data["leave_out"]
    assert "n3" == left_out["node"]
    assert any(ODD in it for it in left_out["reasons"])


def sending(four, source, to):
    """Start to send a file to all nodes."""
    words = [sys.executable, "-c", SEND, source, to, four.python]
    return four.begin_on("n1", *words, PYTHONPATH=str(ROOT / "installer"))


def sha256_of(path):
    """Return a file's sha256, however large it is."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def test_send_goes_on_without_lost_nodes_and_resumes(four):
    """Two nodes fall away half-way: the others have every byte; back again, they get what they lack."""
    source = four.folder / "source"
    with source.open("wb") as file:
        for _ in range(SENT_BYTES // 1_000_000):
            file.write(os.urandom(1_000_000))
    to = four.home / "self" / "carried"
    child = sending(four, source, to)
    half = told_until(child, rf"^n4 ({SENT_BYTES // 2}|1[0-9]{{8}})$", child.stdout)
    four.kill_node("n3")
    four.cut_off("n4")
    done = finish(child)
    assert 0 == done.code, "".join(half) + done.out + done.err
    sent = json.loads(done.out.splitlines()[-1])
    assert {"n1": "", "n2": ""} == {name: why for name, why in sent.items() if not why}
    assert {"n3", "n4"} == {name for name, why in sent.items() if why}
    digest = sha256_of(source)
    assert [digest, digest] == [sha256_of(four.disk(it) / "self/carried") for it in ("n1", "n2")]
    for name in ("n3", "n4"):
        four.wait_until_gone(name)
        four.add_node(name)
    done = finish(sending(four, source, to))
    *told, sent = done.out.splitlines()
    assert dict.fromkeys(NODES, "") == json.loads(sent)
    first = {name: int(next(it for it in told if it.startswith(name)).split()[1]) for name in NODES}
    assert (SENT_BYTES, SENT_BYTES) == (first["n1"], first["n2"])
    assert all(0 < first[name] < SENT_BYTES for name in ("n3", "n4")), first
    assert [digest, digest] == [sha256_of(four.disk(it) / "self/carried") for it in ("n3", "n4")]


@pytest.fixture
def index(four, tiny_store):
    """Serve the row's wheels to the nodes; what nodes receive comes slowly, so that there is a half-way."""
    for name in NODES[1:]:
        four.slow(name, 100)
    with four.serving(tiny_store[1]):
        yield four


def stages(done):
    """Return how far each node came."""
    return {it["name"]: (it["stage"], it["ok"]) for it in done.json["data"]["nodes"]}


def test_install_brings_all_to_one_digest(index):
    """All prove the same and switch; each wheel is asked for once."""
    done = index(*INSTALL)
    assert (0, dict.fromkeys(NODES, ("switched", True))) == (done.code, stages(done)), done.err
    (name,) = {it["environment"] for it in done.json["data"]["nodes"]}
    assert {f"environments/{name}"} == {os.readlink(index.disk(it) / "current") for it in NODES}
    assert {1} == {it["requests"] for it in index.counted().values()}


LOSSES = {
    "killed": lambda nodes: nodes.kill_node("n4"),
    "cut off": lambda nodes: nodes.cut_off("n4"),
    "full": lambda nodes: nodes.fill_disk("n4"),
}


@pytest.mark.parametrize("stage", ["carry", "build"])
@pytest.mark.parametrize("loss", LOSSES)
def test_lost_half_way(index, loss, stage):
    """The others prove it, and nothing switches; the report names who was lost; the rerun does the rest."""
    child = index.begin(*INSTALL)
    told_until(child, {"carry": r"n4: [2-4]\d\.\d MB of", "build": "n4: build"}[stage], child.stderr)
    LOSSES[loss](index)
    done = finish(child)
    kept = dict.fromkeys(NODES[:3], ("proved", True))
    assert (6, kept | {"n4": (stage, False)}) == (done.code, stages(done)), done.out + done.err
    data = done.json["data"]
    assert not data["switched"]
    why = next(it["why"] for it in data["nodes"] if it["name"] == "n4")
    assert ("No space left on device" in why) == (loss == "full"), why
    assert not any((index.disk(it) / "current").exists() for it in NODES)
    before = index.counted()
    bring_back(index, loss)
    done = index(*INSTALL)
    assert (0, dict.fromkeys(NODES, ("switched", True))) == (done.code, stages(done)), done.err
    there = [it["there_before"] for it in done.json["data"]["nodes"]]
    assert ([True, True, True, False], before) == (there, index.counted())


def bring_back(nodes, loss):
    """Undo the loss of a node."""
    if loss == "full":
        nodes.empty_disk("n4")
        return
    nodes.wait_until_gone("n4")
    nodes.add_node("n4")
