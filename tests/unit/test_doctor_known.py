"""The table of findings against the code that makes them, failures and pages."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

import verl_env
from verl_env.doctor.failures import load_catalogue
from verl_env.doctor.known import AREAS, KNOWN, found
from verl_env.doctor.look import checks, in_order

PACKAGE = Path(verl_env.__file__).parent
ROOT = PACKAGE.parents[1]
_MADE = re.compile(r"""(?:\bfound\(\s*|\bid=)"([a-z0-9-]+)"|^    _?[A-Z_0-9]+: \(\s*"([a-z0-9-]+)",""", re.MULTILINE)
LIBRARY_FAULTS = {f"{name}-{fault}" for name in ("nvml", "libcuda") for fault in ("hung", "crashed", "unloadable")}
CONDITIONAL = {"gpu-not-in-container", "device-files-missing", "set-incoherent", "two-cuda-majors"}


def made():
    """Return the ids that the code can make, read from its source."""
    texts = [path.read_text() for folder in ("node", "doctor") for path in (PACKAGE / folder).glob("*.py")]
    ids = {one or other for text in texts for one, other in _MADE.findall(text)}
    return ids | LIBRARY_FAULTS | CONDITIONAL


def test_every_finding_is_known():
    """No code makes a finding that the table does not know, and the table has none that nothing makes."""
    assert set(KNOWN) == made()


def test_areas():
    """Each finding's area is one that can be looked at, and each area has a check."""
    assert {known.area for known in KNOWN.values()} == set(AREAS)
    assert list(AREAS) == list(checks())


def test_failures_name_known_findings():
    """What confirms a failure is a finding that exists."""
    named = {name for failure in load_catalogue().failures.values() for name in failure.findings}
    assert set() == named - set(KNOWN)


@pytest.mark.skipif(not (ROOT / "docs").is_dir(), reason="docs/ is in the repository only")
def test_pages_are_made_from_the_data():
    """docs/findings and docs/failures.md are what the script writes."""
    spec = importlib.util.spec_from_file_location("make_doctor_docs", ROOT / "scripts/make_doctor_docs.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert 0 == script.main(["--check"])


def test_order():
    """Errors come first, then by area; each finding once."""
    warning = found("shm-small", "e", "a")
    error = found("ray-unreachable", "e", "a", severity="error")
    assert [error, warning] == in_order([warning, error, warning])
