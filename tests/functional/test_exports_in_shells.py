"""Exports of arbitrary text survive real shells: one batched call a shell, `env -0` at its end."""

from __future__ import annotations

import json
import shutil
import subprocess
from io import StringIO

import pytest
from dotenv import dotenv_values
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from verl_env.environment.exports import Export
from verl_env.environment.shells import render_exports

# Whatever an operating system takes as a variable's value.
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40)
VALUES = st.lists(st.one_of(TEXT, st.text("'\"$`\\\n !#~*?;&|<>(){}[]=%é", max_size=12)), min_size=1, max_size=60)
OTHER = "/usr/bin:/bin"


def exports_for(values):
    """Return one export a value, by turns set and put in front of a list."""
    return tuple(
        Export(name=f"V{number}", value=value, how="prepend" if number % 3 == 2 and value else "set", why="")
        for number, value in enumerate(values)
    )


def before(exports):
    """Return what the variables of lists hold before: something, or nothing."""
    return {it.name: "/old" for it in exports if it.how == "prepend" and int(it.name[1:]) % 2}


def through(program, text, environ):
    """Return the variables after a shell has read the text."""
    done = subprocess.run(
        [*program, "-c", f"{text}\nenv -0"], env={"PATH": OTHER, **environ}, capture_output=True, check=True
    )
    assert b"" == done.stderr
    return dict(line.split("=", 1) for line in done.stdout.decode().split("\0") if "=" in line)


def expected(exports, environ):
    """Return the values that JSON gives."""
    return json.loads(render_exports(exports, "json", environ))


@pytest.mark.parametrize("shell", ["dash", "bash", "zsh", "busybox", "fish"])
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(values=VALUES)
def test_any_text_survives_a_shell(shell, values):
    """sh, bash, zsh, busybox and fish give the values that JSON gives."""
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not here")
    program = [shutil.which(shell), *(["sh"] if shell == "busybox" else [])]
    exports = exports_for(values)
    environ = before(exports)
    text = render_exports(exports, "fish" if shell == "fish" else "sh", environ)
    found = through(program, text, environ)
    assert expected(exports, environ) == {it.name: found.get(it.name) for it in exports}


def is_readable(value):
    """Whether readers of dotenv agree on a value: a dollar sign beside a quote, newline or backslash divides them."""
    return "$" not in value or not set("'\n\r\\") & set(value)


@settings(max_examples=100, deadline=None)
@given(values=VALUES)
def test_any_text_survives_dotenv(values):
    """python-dotenv gives the values that JSON gives."""
    exports = exports_for([value for value in values if is_readable(value)])
    environ = before(exports)
    found = dotenv_values(stream=StringIO(render_exports(exports, "dotenv", environ)), interpolate=False)
    assert expected(exports, environ) == dict(found)
