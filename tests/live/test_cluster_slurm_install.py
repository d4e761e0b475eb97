"""`cluster install` on a real Slurm: one digest everywhere, nodes that fail, and the rerun that completes them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from repacked import own_wheels
from slurm_job import slurm_job, told_by
from slurm_nodes import missing
from tiny import ROOT, Site, build_wheel

pytestmark = [pytest.mark.live, pytest.mark.skipif(bool(missing()), reason=missing())]

NODES = ("node1", "node2", "node3")
ROW = ("torch", "verl", "tiny_sub", "big_tiny")
MEBIBYTE = 1 << 20

# Serves a folder inside the cluster's network, and says at the end how often each file was asked for.
SERVE = """
import json, sys
from dataclasses import dataclass
from pathlib import Path
from tiny import Index, serve_index
index = serve_index(Index(folder=Path(sys.argv[1]), ranges=True))
print(index.url, flush=True)
sys.stdin.read()
print(json.dumps(index.asked))
"""


@dataclass
class Served:
    """The index that a child serves."""

    child: subprocess.Popen
    url: str
    folder: Path

    def asked(self) -> list[str]:
        """End it, and return the wheels that were asked for."""
        out, _ = self.child.communicate()
        return sorted(it.rpartition("/")[2] for it in json.loads(out) if it.endswith(".whl"))


@pytest.fixture
def job():
    """Return verl-env in a job on three nodes; the last one's home is a disk of its own."""
    with slurm_job({name: {} for name in NODES}, small={"node3": 1024}) as started:
        yield started


@pytest.fixture
def index(job, wheels):
    """Serve a tiny row's wheels and verl-env's own inside the cluster, whose nodes have no other network."""
    store = job.work / "store"
    store.mkdir()
    own_wheels(store)
    for name in ("torch", "verl", "tiny-sub"):
        shutil.copy(wheels[name], store)
    content = {"big_tiny/__init__.py": "", "big_tiny/data.txt": os.urandom(4 * MEBIBYTE).hex()}
    build_wheel(store, "big-tiny", "1.0", files=content)
    child = subprocess.Popen(
        [*job.rig.entering(), sys.executable, "-c", SERVE, store],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "installer"), str(ROOT / "tests")])},
        text=True,
    )
    yield Served(child, child.stdout.readline().strip(), store)
    child.communicate()


@pytest.fixture
def tiny_job(job, index):
    """Return verl-env in that job, with a row for it."""
    job.site = Site(folder=job.work / "site")
    job.site.add_row("tiny", [next(index.folder.glob(f"{it}-*")) for it in ROW])
    job.index = index
    return job


INSTALL = ("cluster", "install", "--row", "tiny", "--cpu", "--json")


def courses(done):
    """Return stage and reason of every node."""
    return {it["name"]: (it["stage"], it["why"]) for it in done.json["data"]["nodes"]}


def receipts(job):
    """Return the digests of the environments that are current, by the nodes that one can look into from outside."""
    found = {}
    for name in ("node1", "node2"):
        current = job.rig.folder / "homes" / name / "current"
        place = os.readlink(current).replace(str(job.home), str(current.parent)) if current.is_symlink() else ""
        found[name] = (current.parent / place / "verl-env-receipt.json").is_file() and place.rpartition("-")[2]
    return found


def test_install_with_a_full_disk(tiny_job, index):
    """Nothing is fetched for a node without room; one whose disk fills is named, and with room the rerun completes it."""
    resize = ("mount", "-o")
    tiny_job.rig.on("node3", *resize, "remount,size=40m", tiny_job.home)
    done = tiny_job(*INSTALL)
    assert 11 == done.code, done.err
    stage, why = courses(done)["node3"]
    assert "preflight" == stage
    assert "no space" in why
    assert not (tiny_job.home / "cluster").exists()
    tiny_job.rig.on("node3", *resize, "remount,size=64m", tiny_job.home)
    done = tiny_job(*INSTALL)
    assert 6 == done.code, done.err
    assert {"node1": ("proved", None), "node2": ("proved", None)} == {
        name: it for name, it in courses(done).items() if name != "node3"
    }
    stage, why = courses(done)["node3"]
    assert "carry" == stage
    assert "0 B free" in why
    assert {"node1": False, "node2": False} == receipts(tiny_job)
    tiny_job.rig.on("node3", *resize, "remount,size=1g", tiny_job.home)
    done = tiny_job(*INSTALL)
    assert 0 == done.code, done.err
    assert dict.fromkeys(NODES, ("switched", None)) == courses(done)
    carried = {it["name"]: it["carried_bytes"] for it in done.json["data"]["nodes"]}
    assert (0, 0) == (carried["node1"], carried["node2"])
    digest = done.json["data"]["digest"].removeprefix("sha256:")[:12]
    assert {"node1": digest, "node2": digest} == receipts(tiny_job)
    assert digest in tiny_job.rig.on("node3", "readlink", tiny_job.home / "current").stdout
    assert [] == tiny_job.rig.steps()
    asked = index.asked()
    assert dict.fromkeys(ROW, 1) == {name: sum(it.startswith(name) for it in asked) for name in ROW}


def test_install_while_a_node_dies(tiny_job):
    """A node that loses power while it builds is named, and two are enough; back again, the rerun completes it."""
    child = tiny_job.start(*INSTALL, "--at-least", "2")
    told_by(child, "node2: build")
    tiny_job.rig.kill_node("node2")
    done = tiny_job.finish(child)
    assert 0 == done.code, done.err
    stage, why = courses(done).pop("node2")
    assert "build" == stage
    assert why in ("no sign of life for 90 s", "Slurm says that the node failed")
    assert [("switched", None)] * 2 == [courses(done)[name] for name in ("node1", "node3")]
    tiny_job.rig.start_node("node2")
    tiny_job.rig.wait_for("node2", "idle")
    done = tiny_job(*INSTALL)
    assert 0 == done.code, done.err
    assert dict.fromkeys(NODES, ("switched", None)) == courses(done)
    assert 1 == len(set(receipts(tiny_job).values()))
