"""Nodes that someone wrote down: in words, or in a file."""

from __future__ import annotations

import argparse
import io
import json

import pytest

from verl_env.errors import UsageError
from verl_env.node.arguments import add_node_arguments, is_described, node_from_arguments
from verl_env.node.describe import check_machine, describe, read_node_file
from verl_env.node.facts import Driver, Gpu, Interpreter, Node, Value
from verl_env.node.render import WIDTH, render_node
from verl_env.records import to_plain

NAMES = {
    "H200": "9.0",
    "NVIDIA H200": "9.0",
    "H100": "9.0",
    "A100": "8.0",
    "RTX 4090": "8.9",
    "RTX PRO 6000 Blackwell": "12.0",
}


def test_driver_and_gpu():
    """What is said is known, and what is not stays unknown."""
    node = describe(driver="580.95.05", gpus=["h200"], names=NAMES)
    assert Driver(version="580.95.05", source="described") == node.driver
    assert (Gpu(name="H200", source="described", index=0, compute_capability="9.0"),) == node.gpus
    assert (True, None, None) == (node.described, node.glibc, node.machine)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["h200"], ["H200"]),
        (["NVIDIA-H200"], ["H200"]),
        (["NVIDIA A100-SXM4-80GB"], ["A100"]),
        (["8xh200"], ["H200"] * 8),
        (["2 x H100", "a100"], ["H100", "H100", "A100"]),
        (["GeForce RTX 4090"], ["RTX 4090"]),
        (["rtx4090"], ["RTX 4090"]),
        (["rtx-pro-6000-blackwell"], ["RTX PRO 6000 Blackwell"]),
    ],
)
def test_gpu_names(words, expected):
    """Names are matched as people, clouds and NVML write them."""
    assert expected == [gpu.name for gpu in describe(gpus=words, names=NAMES).gpus]


def test_unknown_gpu_names_close_ones():
    """A name that is not known is refused with those that are near, and the other way to say it."""
    with pytest.raises(UsageError) as caught:
        describe(gpus=["h20O"], names=NAMES)
    assert "no GPU is known by the name `h20O`" == caught.value.message
    assert "H200" in caught.value.hint
    assert "--compute-capability" in caught.value.hint


def test_unknown_gpu_with_its_capability():
    """A name need not be known when its compute capability is given."""
    node = describe(gpus=["2xnewcard"], compute_capabilities=["15.0"], names=NAMES)
    assert [("newcard", "15.0")] * 2 == [(gpu.name, gpu.compute_capability) for gpu in node.gpus]


def test_names_and_capabilities_pair_up():
    """Two names with two capabilities are taken in their order."""
    node = describe(gpus=["a", "b"], compute_capabilities=["8.0", "9.0"])
    assert [("a", "8.0"), ("b", "9.0")] == [(gpu.name, gpu.compute_capability) for gpu in node.gpus]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"driver": "banana"}, "`banana` is no NVIDIA driver version"),
        ({"driver": "580"}, "`580` is no NVIDIA driver version"),
        ({"driver": "580.95.05.1"}, "`580.95.05.1` is no NVIDIA driver version"),
        ({"driver": "１８0.95.05"}, "`１８0.95.05` is no NVIDIA driver version"),  # noqa: RUF001 - meant
        ({"glibc": "3.1"}, "`3.1` is no glibc version"),
        ({"glibc": "musl"}, "`musl` is no glibc version"),
        ({"machine": "riscv64"}, "`riscv64` is no architecture that verl runs on"),
        ({"compute_capabilities": ["sm_90"]}, "`sm_90` is no compute capability"),
        ({"gpus": ["0xh200"]}, "`0xh200` names no GPU"),
        (
            {"gpus": ["a", "b", "c"], "compute_capabilities": ["8.0", "9.0"]},
            "3 GPUs and 2 compute capabilities do not pair up",
        ),
    ],
)
def test_refused_words(words, message):
    """What cannot be understood is refused by name, with a hint."""
    with pytest.raises(UsageError) as caught:
        describe(**words)
    assert message == caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    ("text", "expected"),
    [("x86_64", "x86_64"), ("amd64", "x86_64"), ("ARM64", "aarch64"), ("aarch64", "aarch64")],
)
def test_architectures(text, expected):
    """Architectures by any of their names become what wheels call them."""
    assert expected == check_machine(text)


NODE = Node(
    driver=Driver(version="580.159.04", source="NVML"),
    gpus=(Gpu(name="NVIDIA H200", source="NVML", index=0, compute_capability="9.0", memory_total_mib=143771),),
    glibc=Value(value="2.36", source="confstr"),
    machine=Value(value="x86_64", source="uname"),
    interpreters=(Interpreter(path="/usr/bin/python3.11", kind="system", source="/usr/bin", version="3.11.2"),),
)


@pytest.mark.parametrize("wrap", [lambda plain: plain, lambda plain: {"schema_version": 1, "data": plain}])
def test_node_file(wrap):
    """The whole envelope or its data alone give the node back, marked as described."""
    from dataclasses import replace

    assert replace(NODE, described=True) == read_node_file(json.dumps(wrap(to_plain(NODE))))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the node file is not JSON: "),
        ('{"data": {"driver": ', "the node file is not JSON: "),
        ("[]", "the node file holds no node"),
        ("{}", "the node file holds no node"),
        ('{"data": {}}', "the node file holds no node"),
        ('{"drvier": {}}', "the node file does not describe a node"),
        ('{"driver": "580.95.05"}', "the node file does not describe a node"),
        ('{"driver": {"version": "banana", "source": "me"}}', "`banana` is no NVIDIA driver version"),
    ],
)
def test_refused_files(text, message):
    """A file that is cut off, misspelt or not a node is refused."""
    with pytest.raises(UsageError) as caught:
        read_node_file(text)
    assert caught.value.message.startswith(message)
    assert caught.value.hint


def parse(*words):
    """Parse the arguments that describe a node."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add_node_arguments(parser)
    return parser.parse_args(words)


def test_no_arguments_describe_nothing():
    """Without any of them this machine is measured."""
    assert (False, True) == (is_described(parse()), is_described(parse("--driver", "580.95.05")))


def test_architecture_defaults_to_this_one():
    """A described node has this machine's architecture, and an unknown glibc, unless said."""
    node = node_from_arguments(parse("--driver", "550.54.15", "--gpu", "a100,h100"), names=NAMES)
    assert (["A100", "H100"], None) == ([gpu.name for gpu in node.gpus], node.glibc)
    assert node.machine


def test_node_from_stdin(monkeypatch):
    """`--node -` reads what another machine's detect printed."""
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps({"data": to_plain(NODE)})))
    assert NODE.driver == node_from_arguments(parse("--node", "-"), names={}).driver


@pytest.mark.parametrize("words", [("--node", "x.json", "--driver", "580.95.05"), ("--node", "no/such/file")])
def test_refused_arguments(words):
    """A file and words at once, or a file that is not there, are refused."""
    with pytest.raises(UsageError):
        node_from_arguments(parse(*words), names={})


def test_text_for_people():
    """Every part is there with its source, and no line of an ordinary node is wider than a terminal."""
    text = render_node(NODE)
    assert "580.159.04" in text
    assert "[NVML]" in text
    assert "NVIDIA H200, compute capability 9.0, 143771 MiB" in text
    assert max(len(line) for line in text.splitlines()) <= WIDTH
    assert [] == [line for line in text.splitlines() if line != line.rstrip()]


def test_text_of_a_described_node():
    """A described node says so, and shows nothing as looked for."""
    text = render_node(describe(driver="580.95.05"))
    assert text.startswith("A node as described, not measured here\n")
    assert "not described" in text
    assert "none that a program would find" not in text
