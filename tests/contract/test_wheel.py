"""The wheel that people install: built here, opened, installed, run."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tiny import ROOT
from verl_env import uv


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Build the wheel with its own build backend, from the files that are there."""
    pytest.importorskip("hatchling", reason="the build backend comes with requirements/dev.txt")
    if not (ROOT / "README.md").is_file():
        pytest.skip("README.md is not there yet, and pyproject.toml names it")
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (path,) = folder.glob("*.whl")
    return path


def test_wheel_holds_the_matrix_and_the_script(wheel):
    """Every file of matrices/, the console script, the types marker; no test and no cache."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (entry,) = [name for name in names if name.endswith("entry_points.txt")]
        script = archive.read(entry).decode()
    matrices = {f"verl_env/{it.relative_to(ROOT)}" for it in (ROOT / "matrices").rglob("*") if it.is_file()}
    assert set() == matrices - names
    assert "verl-env = verl_env.cli:main" in script
    assert "verl_env/py.typed" in names
    assert [] == [name for name in names if "__pycache__" in name or name.startswith("tests")]


def test_wheel_runs_where_it_is_installed(wheel, tool, tmp_path):
    """Installed away from the checkout, the console script lists the shipped rows."""
    environ = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(tool.home),
        "UV_CACHE_DIR": str(tmp_path / "cache"),
        "UV_NO_CONFIG": "1",
    }
    venv = tmp_path / "venv"
    words = (
        ["venv", "-q", "--system-site-packages", "--python", sys.executable, venv],
        ["pip", "install", "-q", "--no-deps", "--python", venv, wheel],
    )
    for it in words:
        subprocess.run([uv.executable(), *it], env=environ, check=True, cwd=tmp_path)
    # The dependencies are those that these tests run with.
    here = next(path for path in map(Path, sys.path) if (path / "cattrs").is_dir())
    environ["PYTHONPATH"] = str(here)
    argv = [venv / "bin/verl-env", "matrix", "list"]
    done = subprocess.run(argv, env=environ, cwd=tmp_path, capture_output=True, text=True, check=True)
    rows = {it.stem for it in (ROOT / "matrices/rows").glob("*.toml")}
    assert rows <= set(done.stdout.split())
