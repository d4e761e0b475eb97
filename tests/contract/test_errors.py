"""Exit codes and errors: unique, documented, and each one met by some test."""

from __future__ import annotations

import ast
import inspect
import re
from importlib import import_module
from pkgutil import walk_packages

import pytest

import verl_env
from tiny import ROOT
from verl_env import errors
from verl_env.errors import VerlEnvError

CLASSES = [it for _, it in inspect.getmembers(errors, inspect.isclass) if issubclass(it, VerlEnvError)]
# 0 ok, 1 differs, 2 usage, 70 bug, 130 interrupted, 141 nobody reads our output: codes that are not an error's alone.
SHARED = {0, 1, 141}


def every_class():
    """Return every error class of the package, wherever it is defined."""
    for module in walk_packages(verl_env.__path__, "verl_env."):
        if "_child" not in module.name and "__main__" not in module.name and ".inside." not in module.name:
            import_module(module.name)
    found = [VerlEnvError]
    for kind in found:
        found += [it for it in kind.__subclasses__() if it not in found]
    return found


def test_exit_codes_are_unique():
    """In errors.py no two kinds of error share an exit code or a name."""
    codes = [it.exit_code for it in CLASSES]
    names = [it.code for it in CLASSES]
    assert (sorted(set(codes)), sorted(set(names))) == (sorted(codes), sorted(names))
    assert set() == SHARED & set(codes)


def test_errors_elsewhere_share_a_documented_code():
    """A module's own error has a name of its own and the exit code of one in errors.py."""
    known = {it.exit_code for it in CLASSES}
    others = [it for it in every_class() if it not in CLASSES]
    assert [] == [it for it in others if it.exit_code not in known]
    names = [it.code for it in every_class() if "code" in vars(it)]
    assert sorted(set(names)) == sorted(names)


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_codes_are_shell_codes(kind):
    """A shell shows codes up to 255, and keeps those above 125 but 130 for itself."""
    assert 0 < kind.exit_code <= 125 or kind.exit_code == 130
    assert kind.__doc__


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_readme_documents_the_code(kind):
    """README's table has a row for each exit code."""
    readme = ROOT / "README.md"
    if not readme.is_file():
        pytest.skip("README.md is not there yet")
    rows = re.findall(r"^\|\s*`?(\d+)`?\s*\|", readme.read_text(), flags=re.MULTILINE)
    assert str(kind.exit_code) in rows


def test_every_error_is_met_by_a_test():
    """Each exit code or class of errors.py is expected somewhere in the tests."""
    names, numbers = set(), set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Name):
                names.add(node.id)
            elif isinstance(node, ast.Constant) and isinstance(node.value, int):
                numbers.add(node.value)
    assert [] == [it.__name__ for it in CLASSES if it.__name__ not in names and it.exit_code not in numbers]


def test_a_bug_shows_its_traceback_and_exits_70(tool):
    """An error that nobody foresaw is reported as a bug, with its traceback, also as JSON."""
    tool.site = None
    path = tool.home / "sitecustomize.py"
    path.write_text(
        "import verl_env.matrix.load as it\ndef broken(*_):\n    raise ZeroDivisionError('by design')\nit.load_matrix = broken\n"
    )
    search = f"{path.parent}:{tool.variables()['PYTHONPATH']}"
    done = tool("matrix", "list", "--json", PYTHONPATH=search)
    assert (70, "error") == (done.code, done.json["errors"][0]["code"])
    assert "Traceback" in done.err
    assert "a bug: ZeroDivisionError: by design" in done.json["errors"][0]["message"]
