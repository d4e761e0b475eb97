"""The short benchmarks on the CPU row: that they run, and that each figure is one of a run that ended well."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest

from real import RealTool
from tiny import ROOT

pytestmark = [pytest.mark.live, pytest.mark.network]
SHORT = ("warm", "again", "verify", "memory")


@pytest.mark.skipif(shutil.which("hyperfine") is None, reason="hyperfine is not here")
def test_the_short_benchmarks(tmp_path):
    """One run each; the table has every command, and verl-env's own memory is measured."""
    tool = RealTool(home=tmp_path / "home", work=tmp_path)
    planned = tool("install", "--cpu", "--dry-run", "--json").json["data"]
    words = [planned["row"], "--python", planned["python"], "--runs", "1", "--work", str(tmp_path / "work")]
    script = str(ROOT / "benchmarks" / "run.py")
    done = subprocess.run(
        [sys.executable, script, *words, "--json", str(tmp_path / "figures.json"), "--only", *SHORT],
        capture_output=True,
        text=True,
        check=False,
    )
    assert 0 == done.returncode, done.stderr[-3000:]
    said = json.loads((tmp_path / "figures.json").read_text())
    assert {"warm", "again", "verify"} == set(said["figures"])
    assert all(len(times) == 1 and times[0] > 0 for case in said["figures"].values() for times in case.values())
    assert 10_000_000 < said["peak"]
    assert all(f"| {name} |" in done.stdout for case in said["figures"].values() for name in case)
    shutil.rmtree(tmp_path / "work")
