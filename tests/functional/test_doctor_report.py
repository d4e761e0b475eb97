"""`verl-env report`: one file for an issue, without secrets and without people."""

from __future__ import annotations

import stat

import pytest

from made import node_of
from tiny import build_wheel
from verl_env.capture.recognise import read_text
from verl_env.node.facts import Gpu
from verl_env.node.render import render_node

TOKEN = "hf_" + "t0ken" * 4


def test_report_names_no_secret_and_nobody(tool, tmp_path):
    """Tokens, the home folder and the user's name are taken out; what matters is there."""
    log = tmp_path / "run.log"
    log.write_text(
        f"--token {TOKEN} in {tool.home}/run\nImportError: libcudart.so.13: cannot open shared object file\n"
    )
    done = tool(
        "report",
        "--deep",
        "--log",
        log,
        HF_TOKEN=TOKEN,
        HF_HOME=f"{tool.home}/hf",
        USER="adalovelace",
        UV_DEFAULT_INDEX="https://adalovelace:pw@index.example/simple",
    )
    assert 0 == done.code
    for private in (TOKEN, str(tool.home), "adalovelace", ":pw@"):
        assert private not in done.out
    for part in ("## Findings", "## Log", "libcudart-missing", "## Node", "## Variables", "HF_HOME=~/hf", "HF_TOKEN=…"):
        assert part in done.out


def test_report_to_a_file(tool, tmp_path):
    """With -o the report is written there, and only there."""
    path = tmp_path / "report.md"
    done = tool("report", "--deep", "-o", path)
    assert (0, f"wrote {path}; read it before you share it\n") == (done.code, done.out)
    assert path.read_text().startswith("# verl-env report\n")
    assert stat.S_ISREG(path.stat().st_mode)


@pytest.mark.parametrize("quoted", [False, True], ids=["file", "quoted-in-an-issue"])
def test_report_is_read_back(tiny, site, wheels, quoted):
    """`capture --from` makes the row's lock of a report of its environment, whatever its user and packages are called."""
    odd = build_wheel(wheels["torch"].parent, "tiny-tokenizers", "0.22.1")
    site.add_row("odd", [*(wheels[name] for name in ("torch", "verl", "tiny-sub")), odd], verl="99.0")
    installed = tiny("install", "--cpu", "--row", "odd")
    assert 0 == installed.code, installed.err
    path = tiny.work / "report.md"
    assert 0 == tiny("report", "--deep", "-o", path, USER="torch").code
    if quoted:
        path.write_text("It does not start:\n\n" + "".join(f"> {line}\n" for line in path.read_text().splitlines()))
    done = tiny("capture", "--from", path, "--json", "-o", "pylock.toml")
    assert 0 == done.code, done.err
    data = done.json["data"]
    assert ("verl-env report", True, []) == (
        data["subject"]["kind"],
        data["subject"]["complete"],
        data["subject"]["unread"],
    )
    assert ("odd", []) == (data["nearest"], data["differences"])


def test_node_of_a_report_is_read_back():
    """Driver, GPUs, glibc, machine and Python of a report are those of the node and the environment."""
    gpus = tuple(
        Gpu(name="NVIDIA H200", source="NVML", index=index, compute_capability="9.0", memory_total_mib=143771)
        for index in range(2)
    )
    node = node_of("580.95.05", gpus=gpus)
    sections = {"Node": render_node(node), "Environment": "folder  ~/e\npython  3.12.11", "Packages": "verl==0.9.1"}
    text = "\n\n".join(["# verl-env report", *(f"## {it}\n```text\n{body}\n```" for it, body in sections.items())])
    found = read_text(text, "report.md")
    assert ("580.95.05", ("NVIDIA H200", "NVIDIA H200"), "9.0", "2.35", "3.12.11", {"verl": "0.9.1"}) == (
        found.driver,
        found.gpus,
        found.capability,
        found.glibc,
        found.python,
        found.versions,
    )
