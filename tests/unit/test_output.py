"""What reaches the user: colours only where they belong, sizes as they are sold, one JSON object."""

from __future__ import annotations

import io
import json

import pytest

from verl_env import output
from verl_env.errors import LockError


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("stream", "variables", "colored"),
    [
        pytest.param(Terminal(), {}, True, id="a terminal"),
        pytest.param(io.StringIO(), {}, False, id="no terminal"),
        pytest.param(io.StringIO(), {"FORCE_COLOR": "1"}, True, id="FORCE_COLOR beats no terminal"),
        pytest.param(Terminal(), {"NO_COLOR": "1"}, False, id="NO_COLOR beats a terminal"),
        pytest.param(Terminal(), {"NO_COLOR": "1", "FORCE_COLOR": "1"}, False, id="NO_COLOR beats FORCE_COLOR"),
        pytest.param(Terminal(), {"NO_COLOR": ""}, True, id="an empty NO_COLOR says nothing (no-color.org)"),
    ],
)
def test_who_gets_colour(monkeypatch, stream, variables, colored):
    """NO_COLOR, then FORCE_COLOR, then whether it is a terminal."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert colored is output.colored(stream)
    assert ("\033[31mx\033[0m" if colored else "x") == output.paint("x", "red", stream)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (4_400_000_000, "4.4 GB"),
        (2.5e12, "2.5 TB"),
        (9.9e15, "9900.0 TB"),
    ],
)
def test_sizes_are_decimal(count, text):
    """As package indexes and disks count."""
    assert text == output.human_bytes(count)


def test_envelope_of_success():
    """Every key is there, sorted, and text is not escaped to ASCII."""
    text = output.envelope("lock", output.Result(data={"title": "verl · CPU"}))
    assert {
        "schema_version": 1,
        "command": "lock",
        "status": "ok",
        "exit_code": 0,
        "data": {"title": "verl · CPU"},
        "errors": [],
    } == json.loads(text)
    assert "verl · CPU" in text
    assert list(json.loads(text)) == sorted(json.loads(text))


def test_envelope_of_failure():
    """An error has its code, message, hint and evidence, each under its own key."""
    error = LockError("it is cut", hint="write it again", details=("line 3",))
    found = json.loads(output.envelope("install", output.Result(exit_code=10), (error,)))
    assert ("error", 10) == (found["status"], found["exit_code"])
    assert [{"code": "lock", "message": "it is cut", "hint": "write it again", "details": ["line 3"]}] == found[
        "errors"
    ]


def test_envelope_of_a_difference():
    """What a command found is said by its exit code without being an error: 1 is `differs`."""
    statuses = [json.loads(output.envelope("lock", output.Result(exit_code=code)))["status"] for code in (0, 1, 8)]
    assert ["ok", "differs", "failed"] == statuses


def test_error_for_people(capsys):
    """What happened, its evidence indented, a blank line, one hint; all of it on stderr."""
    output.show_error(LockError("it is cut", hint="write it again", details=("line 3",)))
    out, err = capsys.readouterr()
    assert ("", "error: it is cut\n  line 3\n\nhint: write it again\n") == (out, err)


@pytest.mark.parametrize(("quiet", "said"), [(False, "doing\n"), (True, "")])
def test_quiet_silences_notes_and_not_warnings(monkeypatch, capsys, quiet, said):
    """--quiet takes progress away, and leaves what the user must know."""
    monkeypatch.setattr(output, "quiet", quiet)
    output.note("doing")
    output.warn("look")
    assert said + "warning: look\n" == capsys.readouterr().err
