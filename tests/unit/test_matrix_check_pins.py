"""What `matrix check` must see beside test_check.py: facts against rows, policies against pins, what lies about."""

from __future__ import annotations

from dataclasses import replace

import pytest

from made import DIGEST, entry_of, evidence_of, header_of, pins_for
from verl_env.matrix.check import check_matrix, notes_of
from verl_env.matrix.load import load_matrix, read_matrix, stray_files
from verl_env.matrix.pins import Pin, make_pins, render_pins
from verl_env.matrix.rows import Allowance, Reasoned, Resolve, Sdist

SDISTS = (Sdist(name="antlr4-python3-runtime", why="published so"),)
RESOLVE = Resolve(requirements=("verl==0.9.1",), sdists=SDISTS, sources={"torch": "pytorch-cu130"})
DEFAULT = Resolve(requirements=("verl==0.9.1",), sdists=SDISTS)
ROW = """title = "a set"
python = ["3.12"]
arch = ["x86_64"]
[set]
verl = "0.9.1"
torch = "2.13.0+cpu"
"""


def row_faults(facts, **parts):
    """Return the faults of a row."""
    return check_matrix(entry_of(**({"resolve": DEFAULT} | parts)), None, facts)


@pytest.mark.parametrize(
    ("parts", "fault"),
    [
        pytest.param(
            {"set": {"verl": "0.9.1", "torch": "2.11.0+cu131"}},
            "set.torch: torch.toml has no 2.11.0+cu131 for x86_64 (it has cu126, cu128, cu129, cu130)",
            id="a variant that was never built",
        ),
        pytest.param({"python": ("3.9",)}, "python: torch 2.11.0+cu130 has no build for Python 3.9", id="its Pythons"),
        pytest.param(
            {"set": {"verl": "0.7.1", "torch": "2.9.0"}, "arch": ("aarch64",), "cuda": "12.8"},
            "set.torch: 2.9.0 is built without CUDA for aarch64",
            id="aarch64 has CUDA on the default index from 2.11 on",
        ),
        pytest.param(
            {"set": {"verl": "0.9.1", "torch": "2.13.0", "vllm": "0.24.0"}},
            "set.torch: 2.13.0, and vllm 0.24.0 was built against 2.11.0",
            id="the engine's torch",
        ),
        pytest.param(
            {"set": {"verl": "0.9.1", "torch": "2.11.0+cu128"}, "cuda": "12.8"},
            "resolve.sources: torch 2.11.0+cu128 is served by pytorch-cu128, not by default",
            id="the index that serves it",
        ),
        pytest.param({"python": ("3.12.1",)}, 'python: not a minor such as 3.12: "3.12.1"', id="a patch release"),
        pytest.param(
            {"arch": ("amd64",)}, "arch: not one of x86_64, aarch64: `amd64`", id="an architecture's other name"
        ),
        pytest.param(
            {"resolve": replace(DEFAULT, constraints=(Reasoned(spec="a<2", why=" "),))},
            "resolve.constraints[0].why: say the reason",
            id="a constraint without a reason",
        ),
        pytest.param(
            {"allow": (Allowance(rule="path-clash", what="a/*", why=""),)},
            "allow[0].why",
            id="an allowance without one",
        ),
        pytest.param({"level": "gpu"}, "evidence[0]: level gpu, and no device", id="kernels on no device"),
        pytest.param(
            {"evidence": (evidence_of(python="3.11.9"),)},
            "evidence[0]: the row is not for Python 3.11.9 on x86_64",
            id="evidence of another Python",
        ),
    ],
)
def test_faults_of_a_row(facts, parts, fault):
    """Facts and reasons are held against the row, and each fault names its key."""
    laid = {"resolve": DEFAULT, "level": None} | parts
    evidence = laid.pop("evidence", None)
    entry = entry_of(**laid)
    if evidence:
        entry = replace(entry, row=replace(entry.row, evidence=evidence))

    assert [] != [it for it in check_matrix(entry, None, facts) if fault in it], check_matrix(entry, None, facts)


def test_an_override_may_part_engine_and_torch(facts):
    """A row that overrides torch says so, with its reason; then it is no fault."""
    asked = replace(DEFAULT, overrides=(Reasoned(spec="torch==2.13.0", why="upstream's image has it"),))
    parts = {"set": {"verl": "0.9.1", "torch": "2.13.0", "vllm": "0.24.0"}, "resolve": asked}

    assert [] == row_faults(facts, **parts)


def pins_faults(facts, *, change=None, header=None, resolve=RESOLVE):
    """Return the faults of pins of which verl's, or the header, was changed by hand."""
    pins = pins_for()
    if change:
        mended = tuple(replace(it, **change) if it.name == "verl" else it for it in pins.pins)
        pins = make_pins("a", "3.12", "x86_64", pins=mended, build=pins.build, made=pins.header.made)
    if header:
        pins = replace(pins, header=replace(pins.header, **header))
    return check_matrix(entry_of(resolve=resolve), pins, facts)


@pytest.mark.parametrize(
    ("parts", "fault"),
    [
        pytest.param({"change": {"sha256": "A" * 64}}, "verl: its sha256 is not 64 hex digits", id="hash"),
        pytest.param({"change": {"size": 0}}, "verl: its size is 0", id="size"),
        pytest.param({"change": {"source": "nowhere"}}, "`nowhere` is not in mirrors.toml", id="source nobody knows"),
        pytest.param(
            {"change": {"source": "pytorch-cpu"}}, "verl is from `pytorch-cpu`, and the row", id="other source"
        ),
        pytest.param(
            {"change": {"file": "https://index.example/verl-0.9.1-py3-none-any.whl"}},
            "pins hold names, and neither paths nor URLs",
            id="a URL",
        ),
        pytest.param(
            {"change": {"file": "verl-0.9.0-py3-none-any.whl"}}, "verl 0.9.1: its file is `verl-0.9.0", id="other file"
        ),
        pytest.param({"header": {"glibc": "2.17"}}, "glibc: its header says 2.17, its packages give 2.28", id="glibc"),
        pytest.param({"header": {"packages": 9}}, "packages: its header says 9, its packages give 3", id="count"),
        pytest.param(
            {"resolve": replace(RESOLVE, requirements=("verl==0.9.0",))},
            "requirement verl==0.9.0: verl is 0.9.1",
            id="requirement",
        ),
        pytest.param(
            {"resolve": replace(RESOLVE, requirements=("ray==2.60.0",))},
            "requirement ray==2.60.0: ray is not pinned",
            id="requirement that is missing",
        ),
        pytest.param(
            {"resolve": replace(RESOLVE, constraints=(Reasoned(spec="torch<2.11", why="x"),))},
            "constraint torch<2.11: torch is 2.11.0+cu130",
            id="constraint",
        ),
        pytest.param(
            {"resolve": replace(RESOLVE, overrides=(Reasoned(spec="torch==2.13.0", why="x"),))},
            "override torch==2.13.0: torch is 2.11.0+cu130",
            id="override",
        ),
    ],
)
def test_faults_of_pins(facts, parts, fault):
    """Whatever is wrong with a pin, its header or the row's policies is said."""
    assert [] != [it for it in pins_faults(facts, **parts) if fault in it], pins_faults(facts, **parts)


@pytest.mark.parametrize(
    "resolve",
    [
        pytest.param(replace(RESOLVE, constraints=(Reasoned(spec="numpy<2", why="x"),)), id="of what is not there"),
        pytest.param(
            replace(RESOLVE, constraints=(Reasoned(spec="torch<2; python_version < '3.10'", why="x"),)),
            id="for another Python",
        ),
        pytest.param(
            replace(
                RESOLVE,
                requirements=("verl==0.9.1", "torch==2.9.0"),
                overrides=(Reasoned(spec="torch==2.11.0+cu130", why="x"),),
            ),
            id="that an override supersedes",
        ),
        pytest.param(
            replace(RESOLVE, overrides=(Reasoned(spec="ray==1; sys_platform == 'never'", why="x"),)), id="that removes"
        ),
    ],
)
def test_policies_that_say_nothing_of_these_pins(facts, resolve):
    """Constraints bind what is pinned; an override takes the place of a requirement; markers are the target's."""
    assert [] == pins_faults(facts, resolve=resolve)


def test_notes():
    """Evidence of other pins and variants without pins are said, and are no faults."""
    entry = entry_of(python=("3.12", "3.11"), pins=[header_of(digest="sha256:" + "1" * 64)])

    said = notes_of(entry)

    assert "a: no pins for Python 3.11 on x86_64" in said
    assert [it for it in said if "is of other pins: it does not count" in it] != []
    assert DIGEST == entry.row.evidence[0].pins


def write(folder, name, text):
    """Write one file of a site's matrix."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def test_every_fault_of_every_file_at_once(tmp_path):
    """Two broken rows and broken pins give their faults together, each with its key path; the good row is read."""
    write(tmp_path, "rows/good.toml", ROW)
    write(tmp_path, "rows/one.toml", ROW.replace('"3.12"', "3.12"))
    write(tmp_path, "rows/two.toml", ROW + "[reslove]\n")
    write(tmp_path, "pins/x.toml", "row = 1\n")

    matrix, faults = read_matrix(tmp_path)

    assert "good" in matrix.entries
    assert [] != [it for it in faults if it.startswith("rows/one.toml: python[0]: expected str, found float `3.12`")]
    assert [] != [it for it in faults if it.startswith("rows/two.toml: unknown key `reslove`")], faults
    assert [] != [it for it in faults if it.startswith("pins/x.toml: ")]


def test_files_that_nobody_claims(tmp_path):
    """Pins of no row, and a row under a shipped row's id, are named."""
    write(tmp_path, "rows/cpu.toml", ROW)
    write(tmp_path, "rows/a.toml", ROW)
    pin = Pin(name="verl", version="1", file="verl-1-py3-none-any.whl", size=1, sha256="0" * 64)
    for row in ("a", "b"):
        made = make_pins(row, "3.12", "x86_64", pins=(pin,), build=(), made=pins_for().header.made)
        write(tmp_path, f"pins/{made.header.file_name}", render_pins(made))

    found = stray_files(load_matrix(tmp_path), tmp_path)

    assert found == [
        "rows/cpu.toml: `cpu` is a shipped row too; give the site's an id of its own",
        "pins/b-cp312-x86_64.toml: no row has a variant of this name",
    ]
