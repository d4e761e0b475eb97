"""`cluster check` on a real Slurm, what carries a file there, and what is heard of nodes that fail."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import tarfile

import pytest

from slurm_job import slurm_job, told_by
from slurm_nodes import missing

pytestmark = [pytest.mark.live, pytest.mark.skipif(bool(missing()), reason=missing())]

NEW, OLD = "580.95.05", "535.161.07"
NODES = ("node1", "node2", "node3", "node4")
MEBIBYTE = 1 << 20
DEAD = ("no sign of life for 25 s", "Slurm says that the node failed")


@pytest.fixture
def job():
    """Return verl-env in a job on four nodes; the driver of the last is older."""
    described = {name: {"VERL_ENV_DRIVER": OLD if name == "node4" else NEW, "VERL_ENV_GPU": "h200"} for name in NODES}
    with slurm_job(described) as started:
        yield started


def test_check_finds_the_odd_one(job):
    """Within an allocation Slurm is the engine; the node with the older driver is named, and no step stays."""
    done = job("cluster", "check", "--json")
    assert 8 == done.code, done.err
    data = done.json["data"]
    assert ("slurm", list(NODES)) == (data["engine"], [it["name"] for it in data["nodes"]])
    assert [None] * 4 == [it["error"] for it in data["nodes"]]
    driver = next(it for it in data["differences"] if it["what"] == "driver")
    assert {NEW: ["node1", "node2", "node3"], OLD: ["node4"]} == {it["value"]: it["nodes"] for it in driver["values"]}
    assert [] == job.rig.steps()


def test_check_names_a_dead_node(job):
    """A node without power is named and the others answer: before Slurm knows of it, and after."""
    job.job = job.stand()
    job.rig.kill_node("node3")
    for known in (False, True):
        if known:
            job.rig.wait_for("node3", "down")
        done = job("cluster", "check", "--on", "slurm", "--json", SLURM_JOB_NODELIST="node[1-4]")
        assert 8 == done.code, done.err
        errors = {it["name"]: it["error"] for it in done.json["data"]["nodes"]}
        assert [] == [name for name in ("node1", "node2", "node4") if errors[name]]
        assert ("took it out of job" if known else "cannot start a task") in errors["node3"], errors


def test_send(job):
    """A file reaches every node in its pieces; what is there is not sent again, what is damaged or in the way is told."""
    content = os.urandom(7 * MEBIBYTE // 2)
    (job.work / "file").write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    home = {name: job.rig.folder / "homes" / name for name in NODES}
    (home["node2"] / "a").mkdir()
    (home["node2"] / "a/b").write_bytes(bytes(len(content)))
    (home["node3"] / "a").mkdir()
    (home["node3"] / f"a/b.{digest[:12]}.part").write_bytes(content[: 5 * MEBIBYTE // 2])
    (home["node4"] / "a").write_text("in the way")
    asked = {"send": str(job.work / "file"), "to": str(job.rig.home / "a/b")}
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


@pytest.fixture
def work(job):
    """Return a request that has every node work for half a minute."""
    bundle_that_runs(job.work / "bundle", "#!/bin/sh\necho works on $SLURMD_NODENAME >&2; sleep 30.25; echo é\n")
    done = job.finish(job.speak(send=str(job.work / "bundle"), to=str(job.rig.home / "bundle")))
    assert dict.fromkeys(NODES, "") == done.json["said"], done.err
    call = {"bundle": str(job.rig.home / "bundle"), "words": [], "seconds": 60}
    return {"request": {"home": str(job.rig.home), "calls": [call]}, "seconds": 60}


def test_ask_while_nodes_fail(job, work):
    """A node that loses its network, and one that loses power, are named; the others' work goes on to its end."""
    child = job.speak(**work)
    told_by(child, *(f"told {name} works on {name}" for name in NODES))
    job.rig.kill_node("node2")
    job.rig.cut_off("node3")
    done = job.finish(child)
    assert 0 == done.code, done.err
    said = done.json["said"]
    assert {"node1": "é\n", "node4": "é\n"} == {
        name: it["calls"][0]["out"] for name, it in said.items() if it.get("calls")
    }
    for name in ("node2", "node3"):
        assert said[name]["error"] in DEAD


def test_long_request_while_a_node_is_silent(job):
    """What Slurm holds back from all nodes for one that is gone reaches the others without it."""
    request = {"home": str(job.home), "files": {"lock": "x" * 3 * MEBIBYTE}, "calls": []}
    child = job.speak(request=request, seconds=60, until=str(job.work / "cut"))
    told_by(child, "told everybody answered")
    job.rig.cut_off("node3")
    (job.work / "cut").touch()
    done = job.finish(child)
    assert 0 == done.code, done.err
    said = done.json["said"]
    assert [("", [])] * 3 == [(said[name]["error"], said[name]["calls"]) for name in ("node1", "node2", "node4")]
    assert said["node3"]["error"] in DEAD


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["SIGINT", "SIGKILL"])
def test_interrupted(job, work, number):
    """Ctrl-C, and a kill without warning, end what runs on the nodes, and the step."""
    job.job = job.stand()
    child = job.speak(**work)
    told_by(child, *(f"told {name} works on {name}" for name in NODES))
    os.killpg(child.pid, number)
    done = job.finish(child)
    assert ("KeyboardInterrupt" in done.err) == (number == signal.SIGINT)
    if number == signal.SIGKILL:
        job.rig.wait("the step to end", lambda: not job.rig.steps())
    assert [] == job.rig.steps()
    assert 1 == job.rig.inside("pgrep", "--full", "^sleep 30.25").returncode


def test_node_without_python(job):
    """A node on which no Python starts is named with that; the others answer."""
    names = ("python3", "python3.12", "python3.11", "python3.10", "/usr/bin/python3", "/usr/local/bin/python3")
    found = (shutil.which(name, path=job.variables()["PATH"]) for name in names)
    for place in {os.path.realpath(it) for it in found if it}:
        job.rig.on("node4", "mount", "--bind", "/usr/bin/false", place)
    done = job("cluster", "check", "--json")
    errors = {it["name"]: it["error"] for it in done.json["data"]["nodes"]}
    assert [None] * 3 == [errors[name] for name in NODES[:3]]
    assert errors["node4"].startswith("no Python 3.8 or newer is on this node"), errors


def test_job_that_a_dead_node_ended(job):
    """Without --no-kill Slurm ends the job with the node: that is said, and how to take one that lives on."""
    job.job = job.stand("--no-kill=off")
    job.rig.kill_node("node3")
    job.rig.wait_for("node3", "down")
    done = job("cluster", "check", "--json", SLURM_JOB_NODELIST="node[1-4]")
    (error,) = done.json["errors"]
    assert 14 == done.code
    assert error["message"] in (f"job {job.job} is NODE_FAIL", f"job {job.job} is COMPLETING")
    assert "--no-kill" in error["hint"]


def test_needs_an_allocation(tool):
    """Without a job it says how to get one."""
    done = tool("cluster", "check", "--on", "slurm", "--json")
    assert (14, "`salloc --nodes=4 --no-kill`, then run this again in its shell") == (
        done.code,
        done.json["errors"][0]["hint"],
    )
