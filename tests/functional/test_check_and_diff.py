"""`check` and `diff` as users run them: codes, names of rules, and what scripts read."""

from __future__ import annotations

import pytest

INCOHERENT = "torch==2.11.0\ntorchaudio==2.10.0\nnvidia-cuda-nvcc==13.5.37\nnvidia-cuda-runtime==13.0.96\n"


def give(tool, text, name="freeze.txt"):
    """Write a file and return its path."""
    path = tool.home / name
    path.write_text(text)
    return path


def test_check_finds_nothing(tool):
    """What holds together gives 0."""
    done = tool("check", give(tool, "torch==2.7.0\ntorchaudio==2.7.0\n"), "--json")
    assert (0, "ok", []) == (done.code, done.json["status"], done.json["data"]["findings"])


def test_check_names_rules(tool):
    """What does not gives 8, with each rule, why, and what to write."""
    done = tool("check", give(tool, INCOHERENT))
    assert 8 == done.code
    for words in ("nvcc-minor: ", "torch-family: ", "write: constrain nvidia-cuda-nvcc==13.0.*", "why: "):
        assert words in done.out
    found = tool("check", give(tool, INCOHERENT), "--json").json
    assert ("failed", ["nvcc-minor", "torch-family"]) == (
        found["status"],
        [it["rule"] for it in found["data"]["findings"]],
    )


def test_check_sets_rules_aside(tool):
    """What is allowed by name no longer counts, and is still said."""
    path = give(tool, INCOHERENT)
    done = tool("check", path, "--allow", "nvcc-minor,torch-family")
    assert (0, True) == (done.code, "allowed nvcc-minor" in done.out)
    done = tool("check", path, "--allow", "no-such-rule")
    assert (2, True) == (done.code, "no rule is called `no-such-rule`" in done.err)


@pytest.mark.parametrize("row", ["verl091-vllm024-cu130", "cpu"])
def test_check_of_a_row(tool, row):
    """A shipped row holds together."""
    assert 0 == tool("check", row).code


def test_check_of_an_environment(tiny):
    """An environment's own requirements are judged too."""
    assert tiny("install", "--cpu").code == 0
    assert 0 == tiny("check", "current").code
    site = next(iter(tiny.current.resolve().glob("lib/python3*/site-packages")))
    info = site / "needy-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: needy\nVersion: 1\nRequires-Dist: torch==2.6.0\n"
                                   "Requires-Dist: tiny-sub>=2\n")  # fmt: skip
    done = tiny("check", "current", "--json")
    assert (8, ["requirement-broken"]) == (done.code, [it["rule"] for it in done.json["data"]["findings"]])


def test_diff_of_the_same(tool):
    """A row beside itself."""
    done = tool("diff", "cpu", "cpu")
    assert (0, True) == (done.code, done.out.endswith("the same\n"))


def test_diff_of_two_rows(tool):
    """What matters comes first; scripts get groups."""
    done = tool("diff", "verl091-vllm024-cu130", "verl071-vllm012-cu129")
    assert 1 == done.code
    titles = [line.split(" (")[0] for line in done.out.splitlines() if line.endswith(")") and not line.startswith(" ")]
    assert ["environment", "torch family", "engine", "CUDA libraries", "other packages"] == titles
    data = tool("diff", "verl091-vllm024-cu130", "verl071-vllm012-cu129", "--json").json["data"]
    assert ("verl091-vllm024-cu130", "580", "525.60.13") == (
        data["left"]["row"], data["left"]["driver_min"], data["right"]["driver_min"]
    )  # fmt: skip
    assert {"CUDA", "driver", "row"} <= {it["name"] for it in data["differences"] if it["group"] == "environment"}


def test_diff_of_a_report_and_a_row(tool):
    """What a report does not name is no difference."""
    report = "PyTorch version: 2.13.0+cpu\nPython version: 3.11.7\n[pip3] torch==2.13.0\n[pip3] numpy==1.26.0\n"
    done = tool("diff", give(tool, report, "report.txt"), "cpu", "--json")
    assert (1, ["numpy"]) == (done.code, [it["name"] for it in done.json["data"]["differences"]])


def test_diff_of_a_lock_and_its_environment(tiny):
    """An environment is its lock, until someone edits it."""
    assert tiny("lock", "--cpu", "-o", "pylock.toml").code == 0
    assert tiny("install", "--cpu").code == 0
    assert 0 == tiny("diff", "pylock.toml", "current").code
    path = next(iter(tiny.current.resolve().glob("lib/python3*/site-packages/verl/__init__.py")))
    path.unlink()
    path.write_text("x = 1\n")
    done = tiny("diff", "pylock.toml", "current")
    assert (1, True) == (done.code, "verl: verl/__init__.py  as published -> edited" in done.out)


@pytest.mark.parametrize(
    "words", [pytest.param(("cpu", "gone"), id="neither"), pytest.param(("cpu", "/nowhere/x"), id="path")]
)
def test_diff_of_nothing(tool, words):
    """What is no side of a comparison is a usage error."""
    done = tool("diff", *words)
    assert (2, "") == (done.code, done.out)


def test_diff_takes_a_rows_pins_for_the_other_sides_machine(tiny, wheels):
    """A row is compared with what runs on the same machine and Python, whatever comes first among its pins."""
    tiny.site.add_row("two", [wheels["torch"], wheels["verl"], wheels["tiny-sub"]], arch=("aarch64", "x86_64"))
    found = {}
    for machine in ("aarch64", "x86_64"):
        report = f"PyTorch version: 2.13.0+cpu\nPython version: 3.11.7\nArchitecture: {machine}\n[pip3] torch==2.13.0\n"
        done = tiny("diff", give(tiny, report, "report.txt"), "two", "--json")
        found[machine] = done.json["data"]["right"]["machine"]
    assert {"aarch64": "aarch64", "x86_64": "x86_64"} == found
