"""`--help` of every command and action: it works, it is on stdout, it names every option."""

from __future__ import annotations

import argparse

import pytest

from verl_env import __version__
from verl_env.cli import COMMANDS, parser_of
from verl_env.commands import cluster, matrix

ACTIONS = {"matrix": matrix.ACTIONS, "cluster": cluster.ACTIONS}


def test_help_names_every_command(tool):
    """The front page has each command with what it does."""
    done = tool("--help")
    assert (0, "") == (done.code, done.err)
    for name, summary in COMMANDS.items():
        assert name in done.out
        assert " ".join(summary.split()[:3]) in " ".join(done.out.split())


@pytest.mark.parametrize(
    "words", [*([name] for name in COMMANDS), *([it, name] for it in ACTIONS for name in ACTIONS[it])], ids=" ".join
)
def test_help_of_a_command(tool, words):
    """Usage, and each of its own options."""
    done = tool(*words, "--help")
    assert (0, "") == (done.code, done.err)
    assert done.out.startswith(f"usage: verl-env {' '.join(words)} ")
    parser = parser_of(words[0])
    if words[1:]:
        (actions,) = (it for it in parser._actions if isinstance(it, argparse._SubParsersAction))
        parser = actions.choices[words[1]]
    for action in parser._actions:
        for option in action.option_strings:
            assert option in done.out


@pytest.mark.parametrize("words", [["--version"], ["-V"]])
def test_version(tool, words):
    """Name and version, on stdout."""
    done = tool(*words)
    assert (0, f"verl-env {__version__}\n", "") == (done.code, done.out, done.err)
