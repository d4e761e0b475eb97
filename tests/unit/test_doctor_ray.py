"""Judging a Ray cluster by what its head and nodes said."""

from __future__ import annotations

from pathlib import Path

import pytest

from verl_env.doctor.check_ray import judge_cluster, place_of, temp_folder
from verl_env.doctor.situation import Situation, Subject
from verl_env.lock.package import Package
from verl_env.node.facts import Gpu, Node
from verl_env.node.host import Host

GB = 1_000_000_000


def judge(said, gpus=0):
    """Judge against an environment with Ray 2.60.0 on Python 3.11.2."""
    subject = Subject(
        folder=Path("/e"), python=Path("/e/bin/python"), packages=(Package(name="ray", version="2.60.0"),)
    )
    node = Node(gpus=tuple(Gpu(name="H200", source="NVML", index=number) for number in range(gpus)))
    situation = Situation(host=Host(environ={}), node=node, subject=subject)
    found = judge_cluster({"own_python": "3.11.2", **said}, situation, "10.0.0.1:6379")
    return {finding.id: finding.evidence for finding in found}


def node_of(address="10.0.0.2", *, ray="2.60.0", python="3.11.2", shm=64 * GB, limit=None, **resources):
    """Return one node's answer."""
    return {
        "address": address,
        "resources": {"CPU": 8, **resources},
        "said": {"ray": ray, "python": python, "shm": shm, "limit": limit},
    }


def test_all_alike():
    """Nodes of one Ray and Python with room give no finding."""
    said = {"head": {"ray": "2.60.0", "python": "3.11.2"}, "nodes": [node_of(object_store_memory=GB)]}
    assert {} == judge(said)


@pytest.mark.parametrize(
    ("said", "seen"),
    [
        ({"head": {"ray": "2.54.0", "python": "3.11.2"}}, "the head: Ray 2.54.0, Python 3.11.2"),
        ({"head": {"ray": "2.60.0", "python": "3.11.7"}, "error": "RuntimeError: Version mismatch"}, "Python 3.11.7"),
        ({"nodes": [node_of(), node_of("10.0.0.3", python="3.12.1")]}, "node 10.0.0.3: Ray 2.60.0, Python 3.12.1"),
    ],
    ids=["head-ray", "head-python-patch", "one-node"],
)
def test_versions_differ(said, seen):
    """Another Ray or Python patch, at the head or on a node, is one finding that names it."""
    found = judge(said)
    assert ["ray-version-mismatch"] == list(found)
    assert seen in found["ray-version-mismatch"]


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (node_of(shm=GB, object_store_memory=8 * GB), "ray-object-store"),
        (node_of(limit=16 * GB, memory=200 * GB), "ray-memory-limit"),
        (node_of("127.0.0.1", GPU=2), "ray-gpus-missing"),
    ],
)
def test_nodes(node, expected):
    """A store larger than /dev/shm, memory above the cgroup's, GPUs that Ray does not have."""
    assert [expected] == list(judge({"nodes": [node]}, gpus=8))


def test_what_joining_met():
    """An error of joining that no version explains is told in its words."""
    assert "Can't find" in judge({"error": "ValueError: Can't find a `node_ip_address.json` file"})["ray-unreachable"]


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("auto", None),
        ("local", None),
        ("10.0.0.1:6379", ("10.0.0.1", 6379)),
        ("ray://head:10001", ("head", 10001)),
        ("ray://head", ("head", 10001)),
        ("http://head:8265", ("head", 8265)),
        ("head", ("head", 6379)),
        ("[::1]:6379", ("::1", 6379)),
        ("head:port", None),
    ],
)
def test_addresses(address, expected):
    """Each form of an address leads to a host and a port, or to none."""
    assert expected == place_of(address)


def test_temporary_folder():
    """Ray looks at RAY_TMPDIR, then TMPDIR, then /tmp."""
    assert [Path("/r"), Path("/t"), Path("/tmp")] == [
        temp_folder(it) for it in ({"RAY_TMPDIR": "/r", "TMPDIR": "/t"}, {"TMPDIR": "/t"}, {})
    ]
