"""Every option has its variable; a flag beats its variable; a variable is converted as the flag is."""

from __future__ import annotations

import argparse

import pytest

from verl_env import arguments
from verl_env.cli import COMMANDS, parser_of
from verl_env.errors import UsageError


def options_of(parser):
    """Yield every option of a parser and its subparsers, but for --help."""
    return [action for action in arguments._options(parser) if "--help" not in action.option_strings]


def parse(words=(), **variables):
    """Parse with a small parser that has every kind of option, with these variables set."""
    parser = arguments.Parser(prog="x")
    arguments.add_common(parser)
    parser.add_argument("--limit", type=float, default=1.0)
    parser.add_argument("--engine", choices=("vllm", "sglang"))
    parser.add_argument("--with", action="append", default=[])
    parser.add_argument("--needed", required=True)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"VERL_ENV_NEEDED": "n", **variables}.items():
            patch.setenv(name, value)
        arguments.take_environment(parser)
    return parser.parse_args(list(words))


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_has_its_variable(command):
    """Each option of each command has one variable, and within a command no two share one."""
    options = options_of(parser_of(command))
    assert options
    named = {}
    for action in options:
        variable = arguments.variable_of(action)
        assert variable.removeprefix("VERL_ENV_").replace("_", "").isalnum(), variable
        named.setdefault(variable, set()).add(max(action.option_strings, key=len))
    assert [] == [flags for flags in named.values() if len(flags) > 1]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_has_help(command):
    """Each option says what it is for."""
    assert [] == [action.option_strings for action in options_of(parser_of(command)) if not action.help]


@pytest.mark.parametrize(
    ("variable", "value", "dest", "expected"),
    [
        pytest.param("VERL_ENV_LIMIT", "2.5", "limit", 2.5, id="converted"),
        pytest.param("VERL_ENV_ENGINE", "sglang", "engine", "sglang", id="a choice"),
        pytest.param("VERL_ENV_WITH", "a b", "with", ["a", "b"], id="a list, by blanks"),
        pytest.param("VERL_ENV_JSON", "1", "json", True, id="1"),
        pytest.param("VERL_ENV_JSON", "Yes", "json", True, id="yes, in any case"),
        pytest.param("VERL_ENV_JSON", "true", "json", True, id="true"),
        pytest.param("VERL_ENV_JSON", "0", "json", False, id="0"),
        pytest.param("VERL_ENV_JSON", "off", "json", False, id="off"),
        pytest.param("VERL_ENV_JSON", "", "json", False, id="empty says nothing"),
        pytest.param("VERL_ENV_VERBOSE", "2", "verbose", 2, id="a count"),
        pytest.param("VERL_ENV_VERBOSE", "yes", "verbose", 1, id="a count, by word"),
        pytest.param("VERL_ENV_NEEDED", "v", "needed", "v", id="a required one is met by its variable"),
    ],
)
def test_variable_stands_for_its_option(variable, value, dest, expected):
    """A variable is read as its option's argument would be."""
    assert expected == getattr(parse(**{variable: value}), dest)


def test_flag_beats_variable():
    """What is typed wins over what is set."""
    found = parse(["--limit", "3", "--engine", "vllm"], VERL_ENV_LIMIT="2", VERL_ENV_ENGINE="sglang")
    assert (3.0, "vllm") == (found.limit, found.engine)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        pytest.param("VERL_ENV_JSON", "maybe", id="neither yes nor no"),
        pytest.param("VERL_ENV_LIMIT", "soon", id="no number"),
        pytest.param("VERL_ENV_ENGINE", "tgi", id="not among the choices"),
    ],
)
def test_bad_variable_is_named(variable, value):
    """A variable that cannot be understood is named with its value, and the hint says what to do."""
    with pytest.raises(UsageError, match=f"`{variable}={value}`") as raised:
        parse(**{variable: value})
    assert variable in raised.value.hint


def test_no_abbreviations():
    """`--eng` must not work today and break when another option is added."""
    with pytest.raises(UsageError, match="unrecognized arguments"):
        parse(["--eng", "vllm"])


def test_usage_error_points_to_help():
    """What argparse says comes as our own error, with the way to --help."""
    with pytest.raises(UsageError) as raised:
        parse(["--limit"])
    assert "see `x --help`" == raised.value.hint


@pytest.mark.parametrize("words", [["--matrix", "A", "list"], ["list", "--matrix", "A"]], ids=["before", "after"])
def test_common_option_before_or_after_the_action(words, monkeypatch):
    """`matrix --matrix A list` and `matrix list --matrix A` mean the same, also when the variable names B."""
    monkeypatch.setenv("VERL_ENV_MATRIX", "B")
    parser = parser_of("matrix")
    arguments.take_environment(parser)
    assert "A" == parser.parse_args(words).matrix


def test_common_option_of_an_action_by_variable_alone(monkeypatch):
    """Without a flag the variable stands, whichever parser reads it."""
    monkeypatch.setenv("VERL_ENV_MATRIX", "B")
    parser = parser_of("matrix")
    arguments.take_environment(parser)
    assert "B" == parser.parse_args(["list"]).matrix


def test_variable_name_is_that_of_the_long_option():
    """`-o, --output` is VERL_ENV_OUTPUT, and dashes become underscores."""
    parser = argparse.ArgumentParser()
    short = parser.add_argument("-o", "--output-file")
    assert "VERL_ENV_OUTPUT_FILE" == arguments.variable_of(short)
