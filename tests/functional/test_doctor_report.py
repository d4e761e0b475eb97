"""`verl-env report`: one file for an issue, without secrets and without people."""

from __future__ import annotations

import stat

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
