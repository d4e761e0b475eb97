"""The tools of whoever keeps the matrix, with real uv and an index on loopback."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import replace

import pytest

from tiny import DAY, MACHINE, MINOR, Site, build_wheel, evidence_for
from verl_env import toml
from verl_env.matrix.evidence import EvidenceFile, parse_evidence_file, render_evidence_file
from verl_env.matrix.rows import Row
from verl_env.records import from_plain

ROW = f"""title = "two packages"
python = ["{MINOR}"]
arch = ["{MACHINE}"]

[set]
verl = "9.0"
torch = "2.13.0"

[resolve]
requirements = ["verl==9.0"]

[smoke]
imports = ["verl"]
"""
ALLOW = """
[[allow]]
rule = "path-clash"
what = "shared/*.txt"
why = "a file that nothing reads"
"""


def two_wheels(folder, *, theirs="one"):
    """Build two packages that both put a file at shared/words.txt."""
    shared = "shared/words.txt"
    mine = {"verl/__init__.py": "", shared: "one"}
    build_wheel(folder, "verl", "9.0", files=mine, requires=["torch==2.13.0"])
    build_wheel(folder, "torch", "2.13.0", files={"torch/__init__.py": "", shared: theirs})
    return folder


@pytest.fixture
def keeper(tool, tmp_path):
    """Return verl-env with a site's matrix that holds the row `two`, and no pins of it."""
    tool.site = Site(folder=tmp_path / "site")
    tool.site.write("rows/two.toml", ROW)
    return tool


def pins_of(tool):
    """Return the names of the pins that were written."""
    return sorted(it.name for it in (tool.site.folder / "pins").glob("*"))


PINS = [f"two-cp{MINOR.replace('.', '')}-{MACHINE}.toml"]


def test_identical_files_are_no_clash(keeper, serve, tmp_path):
    """Two wheels with the same contents at one path resolve, and their pins are written."""
    keeper.index = serve(two_wheels(tmp_path / "wheels"), ranges=True)

    done = keeper("matrix", "resolve", "two", "--json")

    assert 0 == done.code, done.err
    assert [] == done.json["data"]["variants"][0]["clashes"]
    assert PINS == pins_of(keeper)


@pytest.mark.parametrize("ranges", [pytest.param(True, id="parts of files"), pytest.param(False, id="whole files")])
def test_different_contents_at_one_path_are_refused(keeper, serve, tmp_path, ranges):
    """The packages and the path are named, and nothing is written, whether or not the index sends parts of files."""
    keeper.index = serve(two_wheels(tmp_path / "wheels", theirs="two"), ranges=ranges)

    done = keeper("matrix", "resolve", "two", "--json")

    assert 5 == done.code
    assert "torch 2.13.0 and verl 9.0 put different contents at shared/words.txt" in done.err
    (clash,) = done.json["data"]["variants"][0]["clashes"]
    assert ["torch 2.13.0", "verl 9.0"] == clash["packages"]
    assert [] == pins_of(keeper)


@pytest.mark.parametrize(
    ("row", "words", "said"),
    [
        pytest.param(ROW + ALLOW, (), "(allowed: a file that nothing reads)", id="an allowance of the row"),
        pytest.param(ROW, ("--no-clashes",), "made for the first time", id="not looked for"),
    ],
)
def test_clashes_that_do_not_refuse(keeper, serve, tmp_path, row, words, said):
    """An allowance keeps the finding in sight; --no-clashes does not look."""
    keeper.index = serve(two_wheels(tmp_path / "wheels", theirs="two"))
    keeper.site.write("rows/two.toml", row)

    done = keeper("matrix", "resolve", "two", *words)

    assert 0 == done.code, done.err
    assert said in done.out
    assert PINS == pins_of(keeper)


def test_contents_behind_a_login(keeper, serve, tmp_path):
    """The login of the index is used for its files, and appears nowhere."""
    keeper.index = serve(two_wheels(tmp_path / "wheels", theirs="two"), login="me:hunter2")

    done = keeper("matrix", "resolve", "two")

    assert 5 == done.code
    assert "shared/words.txt" in done.err
    assert "hunter2" not in done.out + done.err


def test_a_variant_that_the_row_does_not_have(keeper):
    """A Python that the row is not for is refused before anything is asked."""
    done = keeper("matrix", "resolve", "two", "--python", "2.7")

    assert 2 == done.code
    assert f"it is for {MINOR} on {MACHINE}" in done.err


@pytest.mark.parametrize("html", [pytest.param(False, id="JSON"), pytest.param(True, id="HTML")])
def test_outdated(keeper, serve, tmp_path, html):
    """What is newer is named, with what holds it back: the row's own words, or a package's."""
    folder = two_wheels(tmp_path / "wheels")
    for version in ("9.1", "10.0rc1"):
        build_wheel(folder, "verl", version)
    for version in ("2.13.1", "2.14.0"):
        build_wheel(folder, "torch", version)
    keeper.index = serve(folder, html=html)

    done = keeper("matrix", "outdated", "two", "--json")

    assert 0 == done.code, done.err
    (row,) = done.json["data"]["rows"]
    verl, torch = row["packages"]
    assert ("9.0", ["9.1"], None) == (verl["have"], verl["newer"], verl["allowed"])
    assert ["the row: verl==9.0"] == verl["held_by"]
    assert (["2.13.1", "2.14.0"], None) == (torch["newer"], torch["allowed"])
    assert [it for it in torch["held_by"] if it.startswith("verl 9.0: torch==2.13.0")] != []


def test_outdated_without_an_index(keeper, serve, tmp_path):
    """An index out of reach is said, package by package, and is no failure of the rest."""
    keeper.index = serve(two_wheels(tmp_path / "wheels"))
    keeper.index.stop()

    done = keeper("matrix", "outdated", "two", "--json", UV_HTTP_TIMEOUT="5")

    assert 0 == done.code, done.err
    assert [True, True] == ["cannot be reached" in it["unknown"] for it in done.json["data"]["rows"][0]["packages"]]


def test_new_row_from_metadata(keeper, serve, tmp_path):
    """Versions, Pythons, CUDA, override and sources come from metadata and torch.toml; the row passes the check."""
    folder = tmp_path / "wheels"
    tag = f"cp38-abi3-manylinux_2_31_{MACHINE}"
    engine = ["torch==2.11.0", "flashinfer-python==0.6.13", "transformers>=5"]
    build_wheel(folder, "vllm", "0.25.0", requires=engine, tag=tag)
    build_wheel(folder, "verl", "0.9.1", requires=["hydra-core", "ray", 'vllm==0.24.0; extra == "vllm"'])
    keeper.index = serve(folder)

    done = keeper("matrix", "new", "--engine", "vllm==0.25.0", "--verl", "0.9.1", "--python", "3.12", "--json")

    assert 0 == done.code, done.err
    assert "verl091-vllm025-cu130" == done.json["data"]["id"]
    row = from_plain(Row, toml.loads((keeper.site.folder / "rows" / "verl091-vllm025-cu130.toml").read_text()))
    wanted = {"verl": "0.9.1", "torch": "2.11.0+cu130", "vllm": "0.25.0", "flashinfer-python": "0.6.13"}
    assert (wanted, "13.0", ("3.12",), (MACHINE,)) == (row.set, row.cuda, row.python, row.arch)
    assert ("verl[vllm]==0.9.1", "vllm==0.25.0") == row.resolve.requirements
    assert "vllm==0.25.0" in [it.spec for it in row.resolve.overrides]
    assert "antlr4-python3-runtime" == row.resolve.sdists[0].name
    assert "there is a row" in keeper("matrix", "new", "--engine", "vllm==0.25.0", "--verl", "0.9.1").err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--engine", "tensorrt"), "`tensorrt` is no engine"),
        (("--engine", "vllm==0.1", "--verl", "0.9.1"), "the index has no wheel of vllm 0.1"),
        (("--engine", "vllm", "--verl", "0.9.1"), "verl 0.9.1 pins no vllm"),
        (("--verl", "new"), "`new` is no version"),
    ],
)
def test_new_row_of_what_is_not_there(keeper, serve, tmp_path, words, said):
    """Each refusal names what was wrong and what there is."""
    folder = tmp_path / "wheels"
    build_wheel(folder, "vllm", "0.25.0")
    build_wheel(folder, "verl", "0.9.1")
    keeper.index = serve(folder)

    done = keeper("matrix", "new", *words)

    assert 2 == done.code, done.err
    assert said in done.err
    assert "hint:" in done.err


@pytest.fixture
def carried(tiny, wheels, tmp_path):
    """Return a row that nobody has proved, and a function that writes an evidence file for it."""
    pins = tiny.site.add_row("far", [wheels["torch"], wheels["verl"], wheels["tiny-sub"]], proved=False, cuda="13.0")
    shown = {"torch_matmul": 'off by 1e-07 on "one" GPU', "p2p_copies": "skipped: one GPU, and so no pair"}
    evidence = replace(evidence_for(pins.header, "gpu"), device="NVIDIA H200, driver 580.95.05", shown=shown)

    def write(**change):
        path = tmp_path / "evidence.toml"
        found = EvidenceFile(row="far", evidence=replace(evidence, **change), installed_bytes=7, installed_files=1)
        path.write_text(render_evidence_file(found))
        return path

    return write


def status(tool, row):
    """Return a row's status."""
    (found,) = (it for it in tool("matrix", "list", "--json").json["data"]["rows"] if it["id"] == row)
    return found["status"]


def test_evidence_is_imported(tiny, carried):
    """A declared row becomes proved by someone's file; a lower level afterwards takes nothing away."""
    assert "resolved" == status(tiny, "far")
    done = tiny("matrix", "import-evidence", carried(), "--json")
    assert 0 == done.code, done.err
    assert ("resolved", "gpu") == (done.json["data"]["status_before"], done.json["data"]["status"])
    assert "gpu" == status(tiny, "far")
    (kept,) = tiny("matrix", "show", "far", "--json").json["data"]["row"]["evidence"]
    assert "skipped: one GPU, and so no pair" == kept["shown"]["p2p_copies"]
    assert 'off by 1e-07 on "one" GPU' == kept["shown"]["torch_matmul"]

    assert 0 == tiny("matrix", "import-evidence", carried(level="imported", device="none")).code
    assert "gpu" == status(tiny, "far")


def test_two_devices_are_both_kept(tiny, carried):
    """Evidence of another GPU stands beside the first; the same again renews it."""
    one, several, other = (f"{name}, driver 590.44.01" for name in ("NVIDIA H200", "2x NVIDIA H200", "NVIDIA L40S"))
    for device in (one, several, other, other):
        assert 0 == tiny("matrix", "import-evidence", carried(device=device)).code

    row = tiny("matrix", "show", "far", "--json").json["data"]["row"]
    assert [one, several, other] == [it["device"] for it in row["evidence"]]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        pytest.param({"pins": "sha256:" + "0" * 64}, "it is of other pins", id="other pins"),
        pytest.param({"level": "resolved"}, "is not one that a run shows", id="a level that no run shows"),
        pytest.param({"level": "perfect"}, "is not one that a run shows", id="an unknown level"),
        pytest.param({"date": DAY - dt.timedelta(days=1)}, "the pins were made on", id="older than its pins"),
        pytest.param({"date": dt.date(2999, 1, 1)}, "its date is 2999-01-01", id="the future"),
        pytest.param({"device": "none"}, "level gpu, and no device", id="kernels on no device"),
        pytest.param(
            {"shown": {"a": "with /home/me/cuda"}}, "`a` names a path of the machine", id="a path of somebody's"
        ),
        pytest.param({"shown": {}}, "no check that says what it found", id="kernels of which nothing is said"),
        pytest.param({"shown": {"p2p_copies": "skipped: one GPU"}}, "no check that says", id="nothing but skipped"),
        pytest.param({"device": "2x Tesla V100, driver 580.95.05"}, "has no code for V100", id="several without code"),
        pytest.param({"device": "a toaster"}, "not a name and a driver", id="no device at all"),
        pytest.param(
            {"device": "NVIDIA H200, driver 535.161.07"}, "CUDA 13.0 needs driver >= 580", id="too old a driver"
        ),
        pytest.param({"device": "Tesla V100, driver 580.95.05"}, "has no code for V100", id="a GPU without its code"),
    ],
)
def test_evidence_that_cannot_be(tiny, carried, change, said):
    """What no run of these pins can have given is refused, and the row stays as it was."""
    before = (tiny.site.folder / "rows" / "far.toml").read_bytes()

    done = tiny("matrix", "import-evidence", carried(**change))

    assert 9 == done.code, done.out
    assert said in done.err
    assert before == (tiny.site.folder / "rows" / "far.toml").read_bytes()


def test_evidence_of_an_unknown_shape(tiny, tmp_path):
    """A file that is none is refused with what is wrong with it."""
    path = tmp_path / "x.toml"
    path.write_text("row = 1\n")

    done = tiny("matrix", "import-evidence", path)

    assert 9 == done.code
    assert "row: expected str, found int `1`" in done.err


def test_proof_is_exported_and_imported(tiny, wheels, tmp_path):
    """`prove --export` leaves the row alone and writes what `import-evidence` takes."""
    tiny.site.add_row("near", [wheels["torch"], wheels["verl"], wheels["tiny-sub"]], proved=False)
    before = (tiny.site.folder / "rows" / "near.toml").read_bytes()
    path = tmp_path / "near.evidence.toml"

    done = tiny("matrix", "prove", "near", "--level", "imports", "--export", path)

    assert 0 == done.code, done.err
    assert before == (tiny.site.folder / "rows" / "near.toml").read_bytes()
    assert str(tiny.home) not in path.read_text()
    assert 0 == tiny("matrix", "import-evidence", path).code
    assert "imported" == status(tiny, "near")


def test_proving_an_environment_that_stands(tiny, tmp_path):
    """An environment of exactly the row's pins gives the row's evidence; the receipt keeps what was shown."""
    assert 0 == tiny("install", "--cpu").code
    path = tmp_path / "found.toml"

    done = tiny("matrix", "prove", "tiny", "--environment", "tiny", "--level", "imports", "--export", path, "--json")

    assert 0 == done.code, done.err
    found = parse_evidence_file(path.read_text(), "found")
    (earlier,) = tiny("matrix", "show", "tiny", "--json").json["data"]["row"]["evidence"]
    assert ("imported", earlier["pins"], "") == (found.evidence.level, found.evidence.pins, found.evidence.over)
    assert found.installed_files > 10
    receipt = json.loads((tiny.current.resolve() / "verl-env-receipt.json").read_text())
    assert [("imports", ["torch", "verl"])] == [
        (it["level"], [shown["name"] for shown in it["shown"]]) for it in receipt["later"]
    ]


def test_no_evidence_from_other_pins(tiny, wheels, tmp_path):
    """An environment of another row's files proves nothing of this row."""
    assert 0 == tiny("install", "--cpu").code
    tiny.site.add_row("near", [wheels["torch"], wheels["tiny-sub"]], proved=False, imports=("torch",))
    path = tmp_path / "found.toml"

    done = tiny("matrix", "prove", "near", "--environment", "tiny", "--level", "imports", "--export", path)

    assert (2, False) == (done.code, path.exists())
    assert "was not made from the pins that row `near` has" in done.err
    assert "it is of row `tiny`" in done.err
