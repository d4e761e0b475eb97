"""What a place has already, and what an environment's variables are in a Dockerfile."""

from __future__ import annotations

import pytest

from verl_env.environment.docker_env import render_env_lines
from verl_env.environment.exports import PREPEND, SET, UNSET, Export
from verl_env.errors import UsageError
from verl_env.lock.already import parse_freeze, same_release


@pytest.mark.parametrize(
    ("pinned", "found", "cuda", "same"),
    [
        pytest.param("1.0", "1.0.0", None, True, id="spelt otherwise"),
        pytest.param("1.0", "1.1", None, False, id="another"),
        pytest.param("2.11.0", "2.11.0+cu130", "13.0", True, id="the lock's CUDA as a label"),
        pytest.param("2.11.0", "2.11.0+cu128", "13.0", False, id="another CUDA"),
        pytest.param("2.11.0", "2.11.0+cpu", "13.0", False, id="for CPUs"),
        pytest.param("2.11.0+cpu", "2.11.0", None, False, id="a label that is missing"),
        pytest.param("2.11.0+cpu", "2.11.0+cpu", None, True, id="the same label"),
        pytest.param("2.9.0", "2.9.0a0+50eac811a6.nv25.09", "13.0", False, id="a vendor's"),
        pytest.param("1.0", "not a version", None, False, id="nonsense"),
    ],
)
def test_same_release(pinned, found, cuda, same):
    """A label counts unless the pin has none and it is of the lock's CUDA."""
    assert same == same_release(pinned, found, cuda)


def test_parse_freeze():
    """Pins count; comments, options and packages from elsewhere do not."""
    text = "# c\nTorch==2.11.0+cu130\nzope.interface == 7.0 ; python_version > '3'\n-e git+https://x#egg=a\nb @ file:///b\n"
    assert {"torch": "2.11.0+cu130", "zope-interface": "7.0"} == parse_freeze(text, "x")


def test_parse_freeze_refuses_what_it_does_not_know():
    """A file of another kind is not taken for an empty list."""
    with pytest.raises(UsageError, match="line 2"):
        parse_freeze("a==1\n{\n", "x")


@pytest.mark.parametrize(
    ("export", "line"),
    [
        pytest.param(
            Export(name="A", value='a "b" $c \\d', how=SET, why=""), 'ENV A="a \\"b\\" \\$c \\\\d"\n', id="odd"
        ),
        pytest.param(
            Export(name="P", value="/x/bin", how=PREPEND, why=""), 'ENV P="/x/bin${P:+:$P}"\n', id="prepended"
        ),
        pytest.param(Export(name="PYTHONHOME", value="", how=UNSET, why=""), 'ENV PYTHONHOME=""\n', id="unset"),
    ],
)
def test_env_lines(export, line):
    """Values survive as Docker reads them."""
    assert line == render_env_lines((export,))


def test_env_lines_cannot_hold_two_lines():
    """What ENV cannot say is said in a comment."""
    assert render_env_lines((Export(name="A", value="a\nb", how=SET, why=""),)).startswith("# A has more than one line")
