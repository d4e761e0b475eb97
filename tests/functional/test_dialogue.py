"""A child that is spoken to in lines."""

from __future__ import annotations

import sys

import pytest

from verl_env.process import Dialogue, clean_environ

ECHO = "import sys\nfor line in sys.stdin: print(len(line), flush=True)\nprint('left', file=sys.stderr)"
DEAF = "import time\nprint('here', flush=True)\ntime.sleep(600)"
LONG = "x" * 3_000_000  # more than a pipe holds


@pytest.fixture
def talk():
    """Return a function that starts a Python to talk with."""
    started = []

    def start(source, **options):
        started.append(Dialogue([sys.executable, "-c", source], env=clean_environ(), **options))
        return started[-1]

    yield start
    for it in started:
        it.end(0.0)


def test_lines_come_in_order_and_the_child_leaves(talk):
    """Long lines and short ones are read in order; with its stdin closed, the child leaves by itself."""
    child = talk(ECHO, merge=True)
    for line in (LONG, "", "abc"):
        child.tell(line)
    assert ["3000001\n", "1\n", "4\n"] == [child.hear(60) for _ in range(3)]
    assert child.end()
    assert ["left\n", None] == [child.hear(60), child.hear(60)]
    assert child.ended


def test_child_that_reads_nothing(talk):
    """It holds nobody up: what it is told waits, and it is ended with its stdin still full."""
    child = talk(DEAF)
    child.tell(LONG)
    assert "here\n" == child.hear(60)
    assert child.hear(0.1) is None
    assert not child.ended
    assert not child.end(0.0)
