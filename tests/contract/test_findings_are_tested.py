"""Each finding has a test that brings its fault about; what cannot be brought about here is listed with the reason."""

from __future__ import annotations

import ast
import functools

from tiny import ROOT
from verl_env.doctor.known import KNOWN

# Tests that run the real thing: programs, namespaces, stub libraries at the boundary of the driver, clusters.
FOLDERS = ("functional", "live")
ELSEWHERE = {
    "no-glibc": "needs a Python that is built for another C library",
}


@functools.cache
def named():
    """Return every string that a test of these folders holds, docstrings aside, with the names of the tests."""
    found = {}
    for path in sorted(it for folder in FOLDERS for it in (ROOT / "tests" / folder).rglob("test_*.py")):
        for test in ast.parse(path.read_text()).body:
            if isinstance(test, ast.FunctionDef) and test.name.startswith("test_"):
                for text in strings_of(test):
                    found.setdefault(text, []).append(f"{path.name}::{test.name}")
    return found


def strings_of(test):
    """Return the strings of one test and of its decorators."""
    own = test.body[0].value if isinstance(test.body[0], ast.Expr) else None
    inside = [node for node in ast.walk(test) if isinstance(node, ast.Constant) and node is not own]
    return {node.value for node in inside if isinstance(node.value, str)}


def test_each_finding_has_a_test():
    """A finding that no test names is either listed as one that cannot be brought about, or has to get a test."""
    assert set() == set(KNOWN) - set(named()) - set(ELSEWHERE)


def test_what_is_listed_is_a_finding():
    """The list does not outlive its findings."""
    assert set() == set(ELSEWHERE) - set(KNOWN)
