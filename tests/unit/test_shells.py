"""Exports written for shells and readers."""

from __future__ import annotations

import json

import pytest

from verl_env.environment.exports import Export
from verl_env.environment.shells import FORMATS, render_exports


def rendered(form, *, value="v", how="set", environ=None):
    """Write one export."""
    return render_exports((Export(name="A", value=value, how=how, why=""),), form, environ or {})


@pytest.mark.parametrize(
    ("form", "how", "text"),
    [
        pytest.param("sh", "set", "export A=v\n", id="sh set"),
        pytest.param("sh", "unset", "unset A\n", id="sh unset"),
        pytest.param("sh", "prepend", 'export A=v"${A:+:$A}"\n', id="sh prepend: no empty part"),
        pytest.param("fish", "set", "set -gx A 'v'\n", id="fish set"),
        pytest.param("fish", "unset", "set -e A\n", id="fish unset"),
        pytest.param("dotenv", "set", "A=v\n", id="dotenv set"),
        pytest.param("dotenv", "unset", "", id="dotenv cannot unset"),
        pytest.param("json", "unset", "{}\n", id="JSON holds what is left set"),
    ],
)
def test_forms(form, how, text):
    """One line a variable, in the form's own words."""
    assert text == rendered(form, how=how)


def test_fish_has_path_as_a_list():
    """In fish PATH is a list, other variables are text joined with colons."""
    export = Export(name="PATH", value="/x", how="prepend", why="")
    assert "set -gx PATH '/x' $PATH\n" == render_exports((export,), "fish", {})
    assert "set -gx A 'v'\":$A\"" in rendered("fish", how="prepend")


@pytest.mark.parametrize("form", ["dotenv", "json"])
def test_lists_are_joined_for_readers_that_cannot(form):
    """Dotenv and JSON hold whole values: what was there is behind ours."""
    text = rendered(form, how="prepend", environ={"A": "/old"})
    assert "v:/old" == (json.loads(text)["A"] if form == "json" else text.strip().removeprefix("A="))


@pytest.mark.parametrize(
    ("value", "written"),
    [
        pytest.param("a b", "'a b'", id="blank"),
        pytest.param("it's", "'it'\"'\"'s'", id="quote"),
        pytest.param("=ls", "'=ls'", id="zsh would take =ls for the path of ls"),
        pytest.param("$HOME", "'$HOME'", id="dollar"),
        pytest.param("", "''", id="empty"),
    ],
)
def test_sh_quoting(value, written):
    """What a shell could read otherwise is quoted."""
    assert f"export A={written}\n" == rendered("sh", value=value)


@pytest.mark.parametrize("form", FORMATS)
def test_a_value_cannot_become_a_command(form):
    """A line end inside a value begins no line that a shell would run."""
    lines = rendered(form, value="a\nrm -rf x").splitlines()
    assert "rm -rf x" not in [line.strip() for line in lines]
