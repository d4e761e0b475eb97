"""The index drifts: each day one row of the matrix is resolved for real, and compared with its pins."""

from __future__ import annotations

import datetime as dt
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "row_of_the_day.py"


@pytest.fixture(scope="module")
def script():
    """Return the script as a module."""
    spec = importlib.util.spec_from_file_location("row_of_the_day", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_row_has_its_day(script):
    """The choice is the date's alone, and as many days as there are variants choose each of them once."""
    every = script.variants()
    days = [dt.date(2026, 12, 1) + dt.timedelta(days=number) for number in range(len(every))]

    assert len(every) > 1
    assert every == sorted(script.of_the_day(every, day) for day in days)


@pytest.mark.network
def test_todays_row_still_resolves():
    """The row of today has a solution on the index; how far it drifted is printed."""
    done = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True, check=False)
    print(done.stdout)

    assert 0 == done.returncode, done.stderr
    assert done.stdout.splitlines()[0].endswith(("as pinned", "changes since its pins"))
