"""What must hold between a row, its pins and the facts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from made import entry_of, pins_for
from verl_env.matrix.check import check_matrix
from verl_env.matrix.load import load_pins
from verl_env.matrix.pins import Pin
from verl_env.matrix.rows import Reasoned, Resolve, Sdist

SET = {"verl": "0.9.1", "torch": "2.11.0+cu130"}
RESOLVE = Resolve(
    requirements=("verl==0.9.1",),
    sdists=(Sdist(name="antlr4-python3-runtime", why="published so"),),
    sources={"torch": "pytorch-cu130"},
)


def faults(facts, pins=None, **parts):
    """Return the faults of a row, or of its pins."""
    return check_matrix(entry_of(**({"set": SET, "resolve": RESOLVE} | parts)), pins, facts)


def test_a_good_row_and_its_pins_have_no_fault(facts):
    """The builder's own row holds together."""
    assert [] == faults(facts)
    assert [] == faults(facts, pins_for())


@pytest.mark.parametrize(
    ("parts", "fault"),
    [
        pytest.param({"set": {"verl": "0.9.1"}}, "set: torch is required", id="no torch"),
        pytest.param({"set": SET | {"Flash_Attn": "1"}}, "write it normalised: flash-attn", id="a name as typed"),
        pytest.param({"set": SET | {"ray": "2.7.x"}}, 'set.ray: not a PEP 440 version: "2.7.x"', id="no version"),
        pytest.param({"cuda": "99.0"}, "cuda: the driver that CUDA 99.0 needs is not in cuda.toml", id="unknown CUDA"),
        pytest.param(
            {"cuda": "12.9", "set": SET}, "cuda: 12.9, and its compiled packages ask for 13.0", id="too low a CUDA"
        ),
        pytest.param(
            {"cuda": "12.8", "set": {"verl": "0.7.1", "torch": "2.9.0", "vllm": "0.12.0"}},
            "ask for 12.9",
            id="the highest of any compiled package counts: vLLM's, not torch's",
        ),
        pytest.param(
            {"set": SET | {"vllm": "0.24.0"}, "attention": None}, "attention: a GPU row names", id="no attention path"
        ),
        pytest.param(
            {"resolve": replace(RESOLVE, requirements=("verl = 1",))},
            "resolve.requirements: not a PEP 508",
            id="a bad requirement",
        ),
        pytest.param(
            {"resolve": replace(RESOLVE, overrides=(Reasoned(spec="a>>1", why="x"),))},
            "resolve.overrides: not a PEP 508",
            id="a bad override",
        ),
        pytest.param(
            {"resolve": replace(RESOLVE, sources={"torch": "nowhere"})},
            "`nowhere` is not in mirrors.toml",
            id="a source nobody knows",
        ),
        pytest.param({"level": "perfect"}, "evidence: unknown level `perfect`", id="an unknown level"),
    ],
)
def test_faults_of_a_row(facts, parts, fault):
    """Each fault names the row and its key."""
    found = faults(facts, **parts)
    assert [] != [it for it in found if fault in it], found
    assert all(it.startswith("a: ") for it in found)


def with_pin(**change):
    """Return the pins with verl's replaced."""
    pins = pins_for()
    return replace(pins, pins=tuple(replace(it, **change) if it.name == "verl" else it for it in pins.pins))


@pytest.mark.parametrize(
    ("pins", "fault"),
    [
        pytest.param(with_pin(version="0.9.2"), "verl is 0.9.2, and the row's set says 0.9.1", id="another version"),
        pytest.param(with_pin(name="verk"), "verl is missing", id="missing"),
        pytest.param(with_pin(file="verl-0.9.1.tar.gz"), "verl is an sdist that the row does not list", id="an sdist"),
        pytest.param(
            with_pin(file="verl-0.9.1-cp311-cp311-manylinux_2_17_x86_64.whl"),
            "cannot be installed by Python 3.12 on x86_64",
            id="a wheel of another Python",
        ),
        pytest.param(
            with_pin(file="verl-0.9.1-cp312-cp312-manylinux_2_17_aarch64.whl"),
            "cannot be installed by",
            id="a wheel of another architecture",
        ),
        pytest.param(
            pins_for(
                extra=(
                    Pin(name="verl", version="0.9.1", file="verl-0.9.1-py2.py3-none-any.whl", size=1, sha256="0" * 64),
                )
            ),
            "a package has more than one file",
            id="two files of one package",
        ),
    ],
)
def test_faults_of_pins(facts, pins, fault):
    """Each fault names the file of pins."""
    found = faults(facts, pins)
    assert [] != [it for it in found if fault in it], found
    assert all(it.startswith("a (a-cp312-x86_64.toml): ") for it in found)


def test_the_shipped_matrix_holds_together(shipped):
    """Every shipped row and all of its pins, and every variant that a row promises has pins."""
    found = []
    for entry in shipped.entries.values():
        found += check_matrix(entry, None, shipped.facts)
        for header in entry.pins:
            found += check_matrix(entry, load_pins(entry, header), shipped.facts)
    assert [] == found
