"""What Slurm's programs write: lines of labelled tasks put together, its errors by node, and records."""

from __future__ import annotations

import json

import pytest

from verl_env.cluster.slurm_text import Ear, Heard, labels, unsent, value_of

NODE = (
    "NodeName=gpu01 Arch=x86_64 CoresPerSocket=1  CPUAlloc=1 CPUTot=2 Gres=(null) NodeAddr=10.211.0.2 "
    "NodeHostName=gpu01.example Version=22.05.8 OS=Linux 6.18 #1 SMP State=DOWN* ThreadsPerCore=1 Reason=Not responding"
)
JOB = "JobId=2 JobName=no-shell UserId=root(0) JobState=RUNNING ReqNodeList=(null) NodeList=node[1,3-4] NumNodes=3"


def pieces(label, message, size):
    """Return a message as a task's child writes it."""
    text = json.dumps(message)
    parts = [text[at : at + size] for at in range(0, len(text), size)]
    return [f"{label}: verl-env:{'.' if it is parts[-1] else '+'}{it}\n" for it in parts]


def heard(*lines):
    """Return what some lines of one srun complete."""
    ear = Ear()
    return [it for it in map(ear.hear, lines) if it]


def test_messages_of_two_tasks_between_each_other():
    """Long messages are put together by label, however their lines fall; a name is known from the first message."""
    first = [{"hello": "gpu01"}, {"told": "x" * 5000 + " é\n"}]
    second = [{"hello": "gpu02"}, {"done": {"out": "y" * 3000}}]
    here = [line for message in first for line in pieces("01", message, 800)]
    there = [line for message in second for line in pieces("10", message, 800)]
    mixed = [line for both in zip(here, there, strict=False) for line in both] + here[len(there) :]
    got = heard(*mixed)
    assert first == [it.message for it in got if it.nodes == "gpu01"]
    assert second == [it.message for it in got if it.nodes == "gpu02"]


def test_message_that_was_cut_off():
    """The end of a killed task's words is not taken for a message, and the next is whole again."""
    hello, cut = pieces("0", {"hello": "gpu01"}, 800), pieces("0", {"told": "x" * 900}, 800)
    got = heard(*hello, *cut[:-1], "0: verl-env:.xx\n", *pieces("0", {"alive": True}, 800))
    assert [{"hello": "gpu01"}, {"alive": True}] == [it.message for it in got]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        pytest.param(
            "srun: error: Task launch for StepId=2.0 failed on node node4: Communication connection failure",
            Heard(
                nodes="node4",
                why="Slurm cannot start a task there: Communication connection failure",
                launched=False,
            ),
            id="slurmd is gone",
        ),
        pytest.param(
            "srun: error: Node failure on node2",
            Heard(nodes="node2", why="Slurm says that the node failed"),
            id="the node is gone",
        ),
        pytest.param(
            "srun: error: node[1-3]: tasks 0-2: Killed",
            Heard(nodes="node[1-3]", why="its task ended (Killed)", exited=True),
            id="killed on several nodes",
        ),
        pytest.param(
            "srun: error: node3: task 2: Out Of Memory",
            Heard(nodes="node3", why="its task ended (Out Of Memory)", exited=True),
            id="killed on one node",
        ),
    ],
)
def test_errors_of_nodes(line, expected):
    """Each of srun's errors that names nodes is told of them."""
    assert [expected] == heard(line)


def test_last_words_of_a_task():
    """What a task wrote to stderr is why it ended."""
    got = heard(
        "1: no Python 3.8 or newer is on this node\n",
        "0: something else\n",
        "srun: error: node2: task 1: Exited with exit code 127\n",
    )
    assert ["no Python 3.8 or newer is on this node (Exited with exit code 127)"] == [it.why for it in got]


def test_what_srun_says_of_itself_is_kept():
    """Errors that are of no node explain why there is no step; a task's words are not among them."""
    ear = Ear()
    lines = ("srun: error: Unable to create step for job 2: Invalid job id", "srun: Job step aborted", "0: words")
    assert [None] * 3 == [ear.hear(it) for it in lines]
    assert ["Unable to create step for job 2: Invalid job id", "Job step aborted"] == list(ear.said)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("3", [3]), ("0-2", [0, 1, 2]), ("0,2-4,7", [0, 2, 3, 4, 7])],
)
def test_labels(text, expected):
    """Slurm writes the numbers of tasks as ranges."""
    assert expected == labels(text)


@pytest.mark.parametrize(
    ("record", "name", "expected"),
    [
        (NODE, "NodeAddr", "10.211.0.2"),
        (NODE, "State", "DOWN*"),
        (NODE, "Partitions", ""),
        (JOB, "NodeList", "node[1,3-4]"),
        (JOB, "JobState", "RUNNING"),
        ("", "JobState", ""),
    ],
)
def test_values_of_records(record, name, expected):
    """A value is found by its whole name."""
    assert expected == value_of(record, name)


def test_nodes_that_sbcast_names():
    """Each node that it could not write on is there with the reason; other lines are not."""
    said = (
        "sbcast: error: REQUEST_FILE_BCAST(node3): No such file or directory\n"
        "sbcast: error: REQUEST_FILE_BCAST(node1): Unspecified error\n"
        "sbcast: error: slurm_send_node_msg: something\n"
    )
    assert {"node3": "No such file or directory", "node1": "Unspecified error"} == unsent(said)
