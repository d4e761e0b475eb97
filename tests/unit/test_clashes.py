"""Wheels that put different contents at one path."""

from __future__ import annotations

import pytest

from verl_env.matrix.clashes import Clash, clash_line, find_clashes, installed_path, parse_record
from verl_env.matrix.rows import Allowance

RECORD = """a/__init__.py,sha256=A,1
"a/with, comma.py",sha256=B,2
a-1.0.data/purelib/a/data.py,sha256=C,3
a-1.0.data/scripts/tool,sha256=D,4
a-1.0.dist-info/METADATA,sha256=E,5
a-1.0.dist-info/licenses/LICENSE,sha256=F,6
a-1.0.dist-info/RECORD,,
"""


def test_record():
    """Every file with where it goes; the wheel's own .dist-info is left out, and commas are quoted."""
    assert parse_record(RECORD) == {
        "a/__init__.py": "sha256=A",
        "a/with, comma.py": "sha256=B",
        "a/data.py": "sha256=C",
        "<bin>/tool": "sha256=D",
    }


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("a/b.py", "a/b.py"),
        ("a-1.data/platlib/a/b.so", "a/b.so"),
        ("a-1.data/headers/a.h", "<headers>/a/a.h"),
        ("a-1.data/data/share/x", "<prefix>/share/x"),
        ("a-1.data/data/lib/python3.12/site-packages/x.py", "x.py"),
    ],
)
def test_where_files_go(path, expected):
    """The .data folder's schemes are those of the Binary distribution format."""
    assert expected == installed_path(path)


def test_identical_contents_are_fine():
    """Eleven cu12 wheels have the same nvidia/__init__.py."""
    records = {f"nvidia-{number} 1": {"nvidia/__init__.py": "sha256=A"} for number in range(11)}

    assert () == find_clashes(records)


def test_clashes_are_grouped_by_who_clashes():
    """Two packages that differ at many paths are one finding; a third that agrees with one of them is named too."""
    records = {
        "b 1": {"x/1": "A", "x/2": "A", "y": "A"},
        "a 1": {"x/1": "B", "x/2": "B"},
        "c 1": {"y": "B"},
    }

    assert find_clashes(records) == (
        Clash(packages=("a 1", "b 1"), paths=("x/1", "x/2")),
        Clash(packages=("b 1", "c 1"), paths=("y",)),
    )


def test_allowances():
    """An allowance covers the paths that it names, under its own rule, and no others."""
    records = {"a 1": {"x/1": "A", "y": "A"}, "b 1": {"x/1": "B", "y": "B"}}
    allow = (
        Allowance(rule="path-clash", what="x/*", why="nobody reads it"),
        Allowance(rule="another", what="y", why="not this rule"),
    )

    found = find_clashes(records, allow)

    assert [(("x/1",), "nobody reads it"), (("y",), None)] == [(it.paths, it.allowed) for it in found]


def test_many_paths_are_counted():
    """A long list names the first few."""
    line = clash_line(Clash(packages=("a 1", "b 2"), paths=tuple("abcdefg"), allowed="so"))

    assert "a 1 and b 2 put different contents at a, b, c, d and 3 more (allowed: so)" == line
