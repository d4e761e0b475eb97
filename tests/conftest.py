"""What every test has: a home of its own, none of this machine's settings, and markers that skip aloud."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from pathlib import Path
from typing import NoReturn

import pytest

from tiny import Index, Site, Tool, build_wheel, serve_index
from verl_env.matrix.load import load_matrix

# A shell that runs this in the background has it ignored, and every program that the tests start inherits that.
signal.signal(signal.SIGINT, signal.default_int_handler)

TESTS = Path(__file__).resolve().parent
# What a user may have set that changes what verl-env, uv, pip or a Python does.
SETTINGS = ("VERL_ENV_", "UV_", "PIP_", "XDG_", "HF_", "CUDA_", "SLURM_", "PYTHON")
ALSO = ("VIRTUAL_ENV", "CONDA_PREFIX", "NO_COLOR", "FORCE_COLOR", "LD_LIBRARY_PATH")
KEPT = ("PYTHONPATH",)  # leads to the package under test when it is not installed


def pytest_addoption(parser):
    """Add the switches of the markers."""
    parser.addoption("--run-gpu", action="store_true", help="run tests that need an NVIDIA GPU")
    parser.addoption("--run-live", action="store_true", help="run tests that install gigabytes")
    parser.addoption("--no-network", action="store_true", help="skip tests that reach the package index")


def pytest_collection_modifyitems(config, items):
    """Skip what was not asked for, with the option that asks for it as the reason."""
    asked = {
        "gpu": (config.getoption("--run-gpu"), "needs an NVIDIA GPU: --run-gpu"),
        "live": (config.getoption("--run-live"), "installs gigabytes: --run-live"),
        "network": (not config.getoption("--no-network"), "--no-network was given"),
    }
    for item in items:
        for name, (wanted, reason) in asked.items():
            if item.get_closest_marker(name) and not wanted:
                item.add_marker(pytest.mark.skip(reason=reason))


def _refuse(*_args, **_options) -> NoReturn:
    raise AssertionError("a pure test started a process or opened a socket")


@pytest.fixture(autouse=True)
def _pure(request):
    """Let unit and property tests neither start a program nor open a socket."""
    if request.node.path.relative_to(TESTS).parts[0] not in ("unit", "property"):
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess, "Popen", _refuse)
        patch.setattr(socket, "socket", _refuse)
        yield


@pytest.fixture(autouse=True)
def _isolated(request, tmp_path_factory):
    """Give each test an empty home and none of the caller's settings; live tests run with the machine's own."""
    if request.node.get_closest_marker("live"):
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        for name in tuple(os.environ):
            if (name.startswith(SETTINGS) or name in ALSO) and name not in KEPT:
                patch.delenv(name)
        home = tmp_path_factory.mktemp("home", numbered=True)
        patch.setenv("HOME", str(home))
        patch.setenv("XDG_CONFIG_DIRS", str(home / "etc-xdg"))
        patch.setenv("PIP_CONFIG_FILE", os.devnull)
        yield


@pytest.fixture
def serve():
    """Return a function that serves a folder of wheels as an index on loopback."""
    started = []

    def start(folder, **options) -> Index:
        started.append(serve_index(Index(folder=folder, **options)))
        return started[-1]

    yield start
    for index in started:
        index.stop()


@pytest.fixture
def tool(tmp_path):
    """Return verl-env with an empty home."""
    for name in ("home", "work"):
        (tmp_path / name).mkdir()
    return Tool(home=tmp_path / "home", work=tmp_path / "work")


@pytest.fixture(scope="session")
def wheels(tmp_path_factory):
    """Return tiny wheels by name: a set that imports, and a ray whose import fails."""
    folder = tmp_path_factory.mktemp("wheels")
    return {
        "torch": build_wheel(folder, "torch", "2.13.0"),
        "torch-gpu": build_wheel(folder, "torch", "2.11.0"),
        "verl": build_wheel(folder, "verl", "99.0", requires=["torch", "tiny-sub"]),
        "tiny-sub": build_wheel(folder, "tiny-sub", "1.2"),
        "ray": build_wheel(
            folder, "ray", "2.60.0", files={"ray/__init__.py": "import ray_of_light_that_is_not_there\n"}
        ),
    }


@pytest.fixture
def site(tmp_path, wheels):
    """Return a site's matrix with one proved CPU row, `tiny`, newer than any that is shipped."""
    made = Site(folder=tmp_path / "site")
    made.add_row("tiny", [wheels["torch"], wheels["verl"], wheels["tiny-sub"]], exports={"TINY_NOTE": "it's set"})
    return made


@pytest.fixture
def index(serve, wheels):
    """Serve the tiny wheels."""
    return serve(wheels["torch"].parent)


@pytest.fixture
def tiny(tool, site, index):
    """Return verl-env on a node where the row `tiny` is the one to choose, and its index is in reach."""
    tool.site, tool.index = site, index
    return tool


@pytest.fixture(scope="session")
def shipped():
    """Return the matrix as it is shipped."""
    return load_matrix()


@pytest.fixture(scope="session")
def facts(shipped):
    """Return the shipped facts."""
    return shipped.facts
