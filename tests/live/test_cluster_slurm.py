"""`cluster check` and `cluster install` on a real Slurm, whose nodes each have a network and a home of their own."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import pytest

from slurm_nodes import SlurmNodes, missing
from tiny import Tool

pytestmark = [pytest.mark.live, pytest.mark.skipif(bool(missing()), reason=missing())]

NEW, OLD = "580.95.05", "535.161.07"
NODES = ("node1", "node2", "node3", "node4")
MEBIBYTE = 1 << 20
# Speaks with the engine as the commands do: with small pieces, so that a small file has several.
SPEAK = """
import json, sys
from pathlib import Path
from verl_env.cluster import slurm_send, slurm_step
from verl_env.cluster.slurm import SlurmEngine
slurm_send.CHUNK, slurm_step._SILENT_SECONDS = 1 << 20, 25.0
asked = json.loads(sys.argv[1])
engine, told = SlurmEngine(), []
def hear(name, what):
    told.append([name, what])
    print("told", name, what, file=sys.stderr, flush=True)
try:
    members = engine.members()
    if "send" in asked:
        said = engine.send(members, Path(asked["send"]), asked["to"], told=hear)
    else:
        answers = engine.ask(members, asked["request"], seconds=asked["seconds"], told=hear)
        said = {name: {"error": it.error, **it.said} for name, it in answers.items()}
finally:
    engine.close()
print(json.dumps({"members": [[it.name, it.address] for it in members], "said": said, "told": told}))
"""
# Serves a folder inside the cluster's network, and says at the end how often each file was asked for.
SERVE = """
import json, sys
from pathlib import Path
from tiny import Index, serve_index
index = serve_index(Index(folder=Path(sys.argv[1]), ranges=True))
print(index.url, flush=True)
sys.stdin.read()
print(json.dumps(index.asked))
"""


class Job(Tool):
    """verl-env in an allocation of a cluster; `job` is one that stands already."""

    rig: SlurmNodes
    job: str = ""

    def start_python(self, *words, cwd=None, **more):
        """Start it beside the controller, as in the shell that salloc opens."""
        variables = self.variables(**self.rig.variables(), VERL_ENV_HOME=str(self.home), **more)
        variables |= {"SLURM_JOB_ID": self.job} if self.job else {}
        salloc = [] if self.job else ["salloc", "--quiet", "--no-kill", f"--nodes={len(self.rig.described)}"]
        return subprocess.Popen(
            [*self.rig.entering(), *salloc, sys.executable, *map(str, words)],
            env=variables,
            cwd=cwd or self.work,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def stand(self) -> str:
        """Take an allocation that stays, and return it."""
        words = ("salloc", "--no-shell", "--no-kill", f"--nodes={len(self.rig.described)}")
        said = self.rig.inside(*words).stderr
        return said.split("job allocation ")[1].split()[0]

    def speak(self, **asked):
        """Start to speak with the engine."""
        return self.start_python("-c", SPEAK, json.dumps(asked))


def job_on(rig, folder, **values) -> Job:
    """Return verl-env in a job on a cluster."""
    job = Job(home=rig.home, work=folder, **values)
    job.rig = rig
    return job


@pytest.fixture
def folder():
    """Return a folder with a path short enough for sockets."""
    made = Path(tempfile.mkdtemp(prefix="ve-", dir="/tmp"))
    yield made
    shutil.rmtree(made)


@pytest.fixture
def rig(folder):
    """Start four nodes; the driver of the last is older."""
    described = {name: {"VERL_ENV_DRIVER": OLD if name == "node4" else NEW, "VERL_ENV_GPU": "h200"} for name in NODES}
    with SlurmNodes(folder=folder / "slurm", described=described) as started:
        yield started


@pytest.fixture
def job(rig, folder):
    """Return verl-env in a job on all nodes."""
    return job_on(rig, folder)


def test_check_finds_the_odd_one(job, rig):
    """Within an allocation Slurm is the engine; the node with the older driver is named, and no step stays."""
    done = job("cluster", "check", "--json")
    assert 8 == done.code, done.err
    data = done.json["data"]
    assert ("slurm", list(NODES)) == (data["engine"], [it["name"] for it in data["nodes"]])
    assert [None] * 4 == [it["error"] for it in data["nodes"]]
    driver = next(it for it in data["differences"] if it["what"] == "driver")
    assert {NEW: ["node1", "node2", "node3"], OLD: ["node4"]} == {it["value"]: it["nodes"] for it in driver["values"]}
    assert [] == rig.steps()


def test_check_names_a_dead_node(job, rig):
    """A node without power is named and the others answer: before Slurm knows of it, and after."""
    job.job = job.stand()
    rig.kill_node("node3")
    for known in (False, True):
        if known:
            rig.wait_for("node3", "down")
        done = job("cluster", "check", "--on", "slurm", "--json", SLURM_JOB_NODELIST="node[1-4]")
        assert 8 == done.code, done.err
        errors = {it["name"]: it["error"] for it in done.json["data"]["nodes"]}
        assert [] == [name for name in ("node1", "node2", "node4") if errors[name]]
        assert ("took it out of job" if known else "cannot start a task") in errors["node3"], errors


def test_send(job, rig, folder):
    """A file reaches every node in its pieces; what is there is not sent again, what is damaged or in the way is told."""
    content = os.urandom(7 * MEBIBYTE // 2)
    (folder / "file").write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    home = {name: rig.folder / "homes" / name for name in NODES}
    (home["node2"] / "a").mkdir()
    (home["node2"] / "a/b").write_bytes(bytes(len(content)))
    (home["node3"] / "a").mkdir()
    (home["node3"] / f"a/b.{digest[:12]}.part").write_bytes(content[: 5 * MEBIBYTE // 2])
    (home["node4"] / "a").write_text("in the way")
    asked = {"send": str(folder / "file"), "to": str(rig.home / "a/b")}
    done = job.finish(job.speak(**asked))
    assert 0 == done.code, done.err
    whole = ("node1", "node2", "node3")
    assert dict.fromkeys(whole, "") == {name: why for name, why in done.json["said"].items() if name != "node4"}
    assert "File exists" in done.json["said"]["node4"] or "Not a directory" in done.json["said"]["node4"]
    assert [digest] * 3 == [hashlib.sha256((home[name] / "a/b").read_bytes()).hexdigest() for name in whole]
    assert [["b"]] * 3 == [[it.name for it in (home[name] / "a").iterdir()] for name in whole]
    assert 2 * MEBIBYTE == next(count for name, count in done.json["told"] if name == "node3")
    times = [(home[name] / "a/b").stat().st_mtime_ns for name in whole]
    again = job.finish(job.speak(**asked))
    assert [[name, len(content)] for name in whole] == sorted(it for it in again.json["told"] if it[0] != "node4")
    assert times == [(home[name] / "a/b").stat().st_mtime_ns for name in whole]


def bundle_that_runs(path, script) -> None:
    """Write what the agent takes for a bundle: an archive whose start.sh it runs."""
    start = path.with_name("start.sh")
    start.write_text(script)
    with tarfile.open(path, "w") as archive:
        archive.add(start, "start.sh")


def told_by(child, *wanted) -> None:
    """Read what a child says until it has told every one of these."""
    left = set(wanted)
    while left:
        line = child.stderr.readline()
        assert line, f"it ended before {left}"
        left -= {it for it in left if it in line}


@pytest.fixture
def work(job, rig, folder):
    """Return a request that has every node work for half a minute."""
    bundle_that_runs(folder / "bundle", "#!/bin/sh\necho works on $SLURMD_NODENAME >&2; sleep 30.25; echo é\n")
    done = job.finish(job.speak(send=str(folder / "bundle"), to=str(rig.home / "bundle")))
    assert dict.fromkeys(NODES, "") == done.json["said"], done.err
    call = {"bundle": str(rig.home / "bundle"), "words": [], "seconds": 60}
    return {"request": {"home": str(rig.home), "calls": [call]}, "seconds": 60}


def test_ask_while_nodes_fail(job, rig, work):
    """A node that loses its network, and one that loses power, are named; the others' work goes on to its end."""
    child = job.speak(**work)
    told_by(child, *(f"told {name} works on {name}" for name in NODES))
    rig.kill_node("node2")
    rig.cut_off("node3")
    done = job.finish(child)
    assert 0 == done.code, done.err
    said = done.json["said"]
    assert {"node1": "é\n", "node4": "é\n"} == {
        name: it["calls"][0]["out"] for name, it in said.items() if it.get("calls")
    }
    for name in ("node2", "node3"):
        assert said[name]["error"] in ("no sign of life for 25 s", "Slurm says that the node failed")


def test_interrupted(job, rig, work):
    """Ctrl-C ends what runs on the nodes, and the step."""
    job.job = job.stand()
    child = job.speak(**work)
    told_by(child, *(f"told {name} works on {name}" for name in NODES))
    os.killpg(child.pid, signal.SIGINT)
    assert "KeyboardInterrupt" in job.finish(child).err
    assert [] == rig.steps()
    assert 1 == rig.inside("pgrep", "--full", "^sleep 30.25").returncode


def test_needs_an_allocation(tool):
    """Without a job it says how to get one."""
    done = tool("cluster", "check", "--on", "slurm", "--json")
    assert (14, "`salloc --nodes=4 --no-kill`, then run this again in its shell") == (
        done.code,
        done.json["errors"][0]["hint"],
    )
