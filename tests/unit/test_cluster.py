"""Many nodes, held against each other: the row for all, what differs, who is a stray, and what links say."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from small_matrix import node_from, small_matrix
from verl_env.cluster.agree import agree, differences
from verl_env.cluster.course import failure_in, stray_pythons
from verl_env.cluster.engine import Answer, Member
from verl_env.cluster.facts import Current, Seen, read_seen
from verl_env.cluster.links import line_of, nccl_facts, plan_of, read_link, rounds_of
from verl_env.commands.cluster_text import some, table
from verl_env.matrix.choose import Wishes
from verl_env.node.facts import Interpreter
from verl_env.records import to_plain

WISHES = Wishes(least="imported")
PYTHONS = ("3.12.3", "3.11.9", "3.10.12")


def member(name):
    """Return a node as an engine names it."""
    return Member(name=name, address=f"10.0.0.{len(name)}")


def seen(name, matrix, *, driver="580.95.05", gpus=("H100",), pythons=PYTHONS, **parts):
    """Return what a node said of itself."""
    node = node_from({"driver": driver, "gpus": list(gpus)}, matrix)
    found = tuple(
        Interpreter(path=f"/usr/bin/python{it}", kind="system", source="tests", version=it, starts=True, headers=True)
        for it in pythons
    )
    return Seen(member=member(name), python="3.12.3", node=replace(node, interpreters=found), **parts)


@pytest.fixture
def matrix(facts):
    """Return the small matrix."""
    return small_matrix(facts)


def test_the_oldest_driver_decides(matrix):
    """Two nodes could run CUDA 13, the third cannot: all get the row of the third."""
    agreed = agree([seen("a", matrix), seen("b", matrix), seen("c", matrix, driver="535.161.07")], matrix, WISHES)
    assert ("cu129", ("a", "b", "c"), ()) == (agreed.fit.entry.id, agreed.nodes, agreed.left_out)


def test_alike_nodes_get_the_newest(matrix):
    """Nothing differs, and the newest row is for all."""
    every = [seen("a", matrix), seen("b", matrix)]
    assert ("cu130", ()) == (agree(every, matrix, WISHES).fit.entry.id, differences(every))


def test_who_would_be_left_out_is_named(matrix):
    """No one row fits: the one for most nodes, and the reason of the node that it leaves out."""
    every = [seen("a", matrix), seen("b", matrix), seen("old", matrix, driver="470.57.02")]
    agreed = agree(every, matrix, WISHES)
    ((name, reasons),) = agreed.left_out
    assert ("cu130", ("a", "b"), "old") == (agreed.fit.entry.id, agreed.nodes, name)
    assert any("470.57.02" in it for it in reasons)


def test_no_row_for_any(matrix):
    """Each node gets its nearest row's reasons."""
    agreed = agree([seen("old", matrix, driver="470.57.02")], matrix, WISHES)
    assert (None, "old") == (agreed.fit, agreed.left_out[0][0])
    assert "nearest is" in agreed.left_out[0][1][0]


def test_the_variant_is_one_for_the_python_of_every_node(matrix):
    """One node has no 3.12: the row's variant for 3.11, which all have, is taken."""
    agreed = agree([seen("a", matrix), seen("b", matrix, pythons=("3.11.9",))], matrix, WISHES)
    assert ("cu130", "3.11") == (agreed.fit.entry.id, agreed.fit.pins.python)


def test_nobody_answered():
    """Without an answer there is nothing to choose by."""
    lost = Seen(member=member("a"), error="no answer within 180 s")
    assert (None, ()) == (agree([lost], None, WISHES).fit, differences([lost]))


def test_what_differs_names_the_odd_one_last(matrix):
    """The commonest value comes first, each with its nodes."""
    current = Current(name="x-1", lock_digest="sha256:1", level="imports", device="none")
    every = [seen("a", matrix), seen("b", matrix), seen("c", matrix, driver="535.161.07", current=current)]
    found = {it.what: it.values for it in differences(every)}
    assert (("580.95.05", ("a", "b")), ("535.161.07", ("c",))) == found["driver"]
    assert (("none", ("a", "b")), ("sha256:1", ("c",))) == found["environment"]
    assert "glibc" not in found


def test_stray_pythons(matrix):
    """Ray joins one exact Python: who has another patch, or none, is named with what most have."""
    every = [
        seen("a", matrix),
        seen("b", matrix),
        seen("c", matrix, pythons=("3.12.7",)),
        seen("d", matrix, pythons=()),
    ]
    found = stray_pythons(every, "3.12")
    assert ["c", "d"] == sorted(found)
    assert ("3.12.7" in found["c"], "3.12.3" in found["c"], "no Python 3.12" in found["d"]) == (True, True, True)
    assert {} == stray_pythons(every[:2], "3.12")


def test_no_python_anywhere(matrix):
    """When no node has the minor, each is told."""
    assert {"a": "no Python 3.9 is here"} == stray_pythons([seen("a", matrix)], "3.9")


def answer(*calls, **said):
    """Return an agent's answer with these calls' outputs."""
    plain = [{"code": code, "out": out, "err": ["some words"]} for code, out in calls]
    return Answer(said={"python": "3.12.3", "calls": plain, **said})


def test_an_answer_becomes_a_node(matrix):
    """What `detect` and `list` said: the node, the environment in use, the newest of each digest, who shares the home."""
    listed = [
        {"name": "x-1", "lock_digest": "sha256:1", "complete": True, "replaced_by": "x-1.2", "current": False},
        {"name": "x-1.2", "lock_digest": "sha256:1", "complete": True, "replaced_by": None, "current": True},
        {"name": "y-1", "complete": False, "current": False},
    ]
    listed[1] |= {"level": "imports", "device": "none"}
    node = seen("a", matrix).node
    said = answer((0, json.dumps({"data": to_plain(node)})), (0, json.dumps({"data": {"environments": listed}})))
    said = replace(said, said={**said.said, "marks": ["a", "b"]})
    found = read_seen(member("a"), said)
    assert ({"sha256:1": "x-1.2"}, "x-1.2", ("b",)) == (found.environments, found.current.name, found.sharing)
    assert node == found.node


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param(Answer(error="the node died"), "the node died", id="the engine's word"),
        pytest.param(answer(error="no Python 3.11 or newer"), "no Python 3.11 or newer", id="the agent's word"),
        pytest.param(
            answer((11, json.dumps({"errors": [{"message": "no space", "details": ["1 GB free"]}]}))),
            "no space; 1 GB free (exit 11)",
            id="the command's error",
        ),
        pytest.param(answer((-9, "")), "some words (exit -9)", id="killed"),
        pytest.param(answer((0, "{}")), "", id="well"),
    ],
)
def test_why_a_request_failed(given, expected):
    """The nearest cause, in one line."""
    assert expected == failure_in(given)


def test_an_answer_that_is_none():
    """Output that is not JSON is an error of that node, not of the command."""
    assert "cannot be read" in read_seen(member("a"), answer((0, "hello"), (0, "{}"))).error


@pytest.mark.parametrize(
    ("count", "expected"),
    [(1, []), (2, [["ab"]]), (3, [["ab"], ["ac"]]), (4, [["ab", "cd"]]), (5, [["ab", "cd"], ["ae"]])],
)
def test_rounds_reach_every_node(count, expected):
    """Each node is in a pair; no node is in two pairs of one round."""
    rounds = rounds_of([member(name) for name in "abcde"[:count]])
    assert expected == [["".join(it.name for it in pair) for pair in one] for one in rounds]


def test_pairs_meet_at_places_of_their_own():
    """The first of a pair listens; two pairs do not share a port."""
    plan = plan_of([(member("a"), member("b")), (member("c"), member("d"))], 23_000)["ranks"]
    assert [0, 1, 0, 1] == [plan[name]["rank"] for name in "abcd"]
    assert [23_000, 23_000, 23_001, 23_001] == [plan[name]["port"] for name in "abcd"]


ROCE = """
node1:10:20 [0] NCCL INFO NET/Plugin: Could not find: libnccl-net.so. Using internal network plugin.
node1:10:20 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.1<0>
node1:10:20 [0] NCCL INFO Using network IB
"""
SOCKET = """
node1:10:20 [0] NCCL INFO NET/IB : No device found.
node1:10:20 [0] NCCL INFO NET/Socket : Using [0]bond0:10.0.0.1<0> [1]eth1:10.1.0.1<0>
node1:10:20 [0] NCCL INFO Using network Socket
"""
OFI = """
node1:10:20 [0] NCCL INFO NET/Plugin: Loaded net plugin AWS Libfabric (v8)
node1:10:20 [0] NCCL INFO Using network AWS Libfabric
"""


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        pytest.param(ROCE, ("RoCE", (), ("mlx5_0", "mlx5_1"), ""), id="RoCE"),
        pytest.param(ROCE.replace("/RoCE", "/IB"), ("IB", (), ("mlx5_0", "mlx5_1"), ""), id="InfiniBand"),
        pytest.param(SOCKET, ("Socket", ("bond0", "eth1"), (), ""), id="sockets"),
        pytest.param(OFI, ("AWS Libfabric", (), (), "AWS Libfabric (v8)"), id="a plugin"),
        pytest.param("", ("", (), (), ""), id="no log"),
    ],
)
def test_words_of_nccl(log, expected):
    """Network, interfaces, HCAs and plugin, from NCCL's own log."""
    found = nccl_facts(log.splitlines())
    assert expected == (found.transport, found.interfaces, found.hcas, found.plugin)


def probe(*, right=True, backend="gloo", nccl=(), memlock=8_388_608):
    """Return what the probe prints."""
    said = {"backend": backend, "right": right, "bytes_per_second": 2e9, "interface": "eth0", "memlock": memlock}
    return answer((0, f"a library's word\n{json.dumps(said | {'nccl': list(nccl)})}\n"))


def test_a_link_is_as_good_as_both_ends_say():
    """gloo says that NCCL was not tried; unlimited memlock reads so; a wrong sum or a dead end is an error."""
    pair = (member("a"), member("b"))
    assert ("a - b: gloo over eth0, 2.0 GB/s, memlock 8.4 MB/unlimited (no GPU: NCCL was not tried)") == line_of(
        read_link(pair, {"a": probe(), "b": probe(memlock=-1)})
    )
    found = read_link(pair, {"a": probe(backend="nccl", nccl=ROCE.splitlines()), "b": probe(backend="nccl")})
    assert "a - b: RoCE over eth0, mlx5_0, mlx5_1, 2.0 GB/s, memlock 8.4 MB" == line_of(found)
    assert "a wrong sum on b" == read_link(pair, {"a": probe(), "b": probe(right=False)}).error
    assert "b: gone" == read_link(pair, {"a": probe(), "b": Answer(error="gone")}).error
    assert "cannot be read" in read_link(pair, {"a": probe(), "b": answer((0, "nothing"))}).error


def test_tables_and_names():
    """Columns line up, a line of two cells goes across, and long lists of nodes are counted."""
    assert ["a   bb", "cc  d", "x   no answer: long"] == table(
        [("a", "bb", ""), ("cc", "d", ""), ("x", "no answer: long")]
    )
    assert "n0, n1, n2, n3, n4, n5 and 4 more" == some([f"n{it}" for it in range(10)])
