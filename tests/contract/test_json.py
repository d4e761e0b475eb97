"""`--json`: exactly one object on stdout, with the same keys, on success and on failure, of every command."""

from __future__ import annotations

import json

import pytest

from verl_env.cli import COMMANDS

KEYS = {"schema_version", "command", "status", "exit_code", "data", "errors"}
ERROR_KEYS = {"code", "message", "hint", "details"}
# How each command is made to succeed with nothing installed, and to fail; None: it cannot, or not so cheaply.
WORDS = {
    "detect": (["--driver", "580.95.05", "--gpu", "h200"], ["--driver", "banana"]),
    "matrix": (["list"], ["show", "no-such-row"]),
    "lock": (["--cpu", "--dry-run"], ["--row", "no-such-row"]),
    "install": (["--cpu", "--dry-run"], ["no-such-file.toml"]),
    "smoke": (None, []),
    "env": (None, []),
    "run": (None, ["--", "true"]),
}


def envelope(done):
    """Return the one object, having checked what every one of them has."""
    found = json.loads(done.out)
    assert found.keys() >= KEYS
    assert (1, done.code) == (found["schema_version"], found["exit_code"])
    assert sorted(found) == list(found)
    return found


@pytest.mark.parametrize("command", [name for name, (good, _) in WORDS.items() if good])
def test_success(tiny, command):
    """Status ok, code 0, no errors, and data."""
    done = tiny(command, "--json", *WORDS[command][0])
    found = envelope(done)
    assert ("ok", 0, [], command) == (found["status"], done.code, found["errors"], found["command"]), done.err
    assert found["data"]


@pytest.mark.parametrize("command", COMMANDS)
def test_failure(tiny, command):
    """Status error, the code of the process, and one error with message and hint; the same on stderr for people."""
    words = WORDS[command][1] if command in WORDS else ["--no-such-option"]
    done = tiny(command, "--json", *words)
    found = envelope(done)
    (error,) = found["errors"]
    assert ("error", command) == (found["status"], found["command"])
    assert error.keys() >= ERROR_KEYS
    assert done.code != 0
    assert error["message"] in done.err
    assert error["hint"]
    assert error["hint"] in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    "words",
    [["--json", "no-such-command"], ["matrix", "--json"], ["lock", "--json", "--no-such-option"]],
    ids=["command", "action", "option"],
)
def test_usage_errors_are_json_too(tool, words):
    """What argparse refuses comes as the same object, with code 2."""
    done = tool(*words)
    assert (2, "usage") == (done.code, envelope(done)["errors"][0]["code"])


def test_the_variable_asks_for_json_too(tool):
    """VERL_ENV_JSON=1 is --json, on success and on failure."""
    assert "ok" == envelope(tool("matrix", "list", VERL_ENV_JSON="1"))["status"]
    assert "error" == envelope(tool("matrix", "show", "x", VERL_ENV_JSON="yes"))["status"]
    assert "id " == tool("matrix", "list", VERL_ENV_JSON="0").out[:3]


def test_a_programs_own_json_option_is_not_ours(tool):
    """`run -- prog --json` speaks to the program: our errors stay text."""
    done = tool("run", "--", "prog", "--json")
    assert ("", 12) == (done.out, done.code)


def test_explain_fails_with_its_data(tiny):
    """When nothing fits, `matrix explain --json` still has every row with its reasons."""
    done = tiny("matrix", "explain", "--json", "--driver", "470.82.01", "--gpu", "h200")
    found = envelope(done)
    assert (4, None) == (done.code, found["data"]["chosen"])
    assert all(row["reasons"] for row in found["data"]["rows"])
    assert {"tiny", "verl091-vllm024-cu130"} <= {row["id"] for row in found["data"]["rows"]}
