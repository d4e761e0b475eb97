"""Start-up is felt on every call: what is imported, and by whom."""

from __future__ import annotations

import ast
import functools

import pytest

from tiny import ROOT
from verl_env.cli import COMMANDS

PACKAGE = ROOT / "installer/verl_env"
HEAVY = {"rich", "requests", "packaging.pylock", "pynvml", "tomlkit", "email", "urllib.request", "asyncio"}

# Pure modules: functions over frozen values. Whoever reads them need not think of the machine.
PURE = [
    *(f"node/{name}" for name in ("facts", "describe")),
    *(
        f"matrix/{name}"
        for name in ("facts", "rows", "pins", "status", "matrix", "fit", "choose", "check", "tags", "evidence")
    ),
    *(f"matrix/{name}" for name in ("attention", "builds", "check_builds")),
    *(f"lock/{name}" for name in ("lockfile", "build", "built", "table")),
    *(f"builds/{name}" for name in ("inputs", "record", "log", "jobs", "adopting", "proven")),
    *(f"environment/{name}" for name in ("exports", "shells")),
    *(f"cluster/{name}" for name in ("course", "facts", "slurm_text")),
]
EDGES = {"subprocess", "socket", "requests", "rich", "urllib.request", "http.client", "ctypes", "shutil", "tempfile"}
DOORS = (
    "verl_env.uv",
    "verl_env.process",
    "verl_env.fetch",
    "verl_env.commands",
    "verl_env.cli",
    "verl_env.output",
    "verl_env.progress",
)


@functools.cache
def imports_of(path):
    """Return the modules that a file imports when it runs, as dotted names; for `from a import b` also `a.b`."""
    tree = ast.parse(path.read_text())
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    found = set()
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


# The command as its console script runs it, which says at the end what was loaded.
PROGRAM = """
import atexit, sys
before = set(sys.modules)
atexit.register(lambda: print("\\nloaded:", *sorted(set(sys.modules) - before), file=sys.stderr))
from verl_env.cli import main
sys.exit(main())
"""


def loaded_by(tool, *words):
    """Return the modules that a call loads, beyond what this Python does by itself."""
    done = tool.finish(tool.start_python("-c", PROGRAM, *words))
    assert 0 == done.code, done.err
    return set(done.err.rpartition("\nloaded: ")[2].split())


@pytest.mark.parametrize(
    "words",
    [["--version"], ["-V"], ["--help"], ["detect"], ["detect", "--json"], ["detect", "--driver", "580.95.05"]],
    ids=" ".join,
)
def test_nothing_heavy_is_loaded(tool, words):
    """Neither rich, requests, packaging.pylock nor their like."""
    loaded = loaded_by(tool, *words)
    assert "verl_env.cli" in loaded
    assert set() == loaded & HEAVY


@pytest.mark.parametrize("words", [["--version"], ["--help"], ["detect"]], ids=" ".join)
def test_importtime_agrees(tool, words):
    """The interpreter's own list, of `python -X importtime -m verl_env`, has nothing heavy either."""
    done = tool(*words, options=("-X", "importtime"))
    loaded = {line.rpartition("|")[2].strip() for line in done.err.splitlines() if line.startswith("import time:")}
    assert "verl_env.cli" in loaded
    assert set() == loaded & HEAVY


def test_version_loads_nothing_else(tool):
    """`--version` is on people's prompts: the front and nothing behind it."""
    loaded = loaded_by(tool, "--version")
    assert {"verl_env", "verl_env.cli"} == {name for name in loaded if name.startswith("verl_env")}
    assert set() == {"argparse", "json", "subprocess", "pathlib", "signal"} & loaded


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_loads_only_itself(tool, command):
    """`COMMAND --help` works, and the modules of other commands are loaded only where its own file imports them."""
    loaded = loaded_by(tool, command, "--help")
    assert f"verl_env.commands.{command}" in loaded
    others = {f"verl_env.commands.{name}" for name in COMMANDS if name != command} & loaded
    imported = set().union(*(imports_of(it) for it in (PACKAGE / "commands").glob(f"{command}*.py")))
    assert set() == others - imported
    assert set() == loaded & {"rich", "requests"}


@pytest.mark.parametrize("name", PURE)
def test_pure_modules_touch_nothing(name):
    """No process, socket, HTTP, terminal, or door of ours is imported, not even inside a function."""
    path = PACKAGE / f"{name}.py"
    if not path.is_file():
        pytest.skip(f"{name}.py is gone: take it off the list")
    found = imports_of(path)
    assert set() == found & EDGES
    assert [] == [it for it in found if it.startswith(DOORS)]


def test_only_the_doors_start_programs_and_speak_http():
    """Subprocess is imported by process.py alone; requests, rich and uv's package by one file each."""
    doors = {"subprocess": {"process.py"}, "requests": {"fetch.py"}, "uv": {"uv.py"}, "rich.progress": {"progress.py"}}
    for module, allowed in doors.items():
        users = {it.name for it in PACKAGE.rglob("*.py") if module in imports_of(it) and "_child" not in it.name}
        assert users <= allowed, module


def test_the_package_is_no_pypi_name():
    """installer/ is a folder and not a package: PyPI's `installer` keeps its import name."""
    assert not (ROOT / "installer/__init__.py").exists()
