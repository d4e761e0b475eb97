"""Faults made for real (faults/): each is refused or outlived, named, leaves nothing, and a rerun ends well."""

from __future__ import annotations

import random
import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "faults"))

import fault_kills as kills
from fault_scenarios import SCENARIOS, NotHereError
from fault_world import make_world

from verl_env.environment.removal import remove_environment
from verl_env.environment.standing import step_back_to

# fault -> exit code, exit code of the rerun, words that were said or noted
EXPECTED = {
    "full disk after 64 kB": (6, 0, "No space left"),
    "full disk after 300 kB": (6, 0, "No space left"),
    "full cache after 200 kB": (6, 0, "No space left"),
    "too little space": (11, None, "are needed"),
    "read-only target": (11, 0, "cannot be written"),
    "network cut": (6, 0, "uv could not install"),
    "half a wheel": (6, 0, "many"),
    "5xx storm": (6, 0, "503"),
    "redirect to another host": (0, None, "0 with the login"),
    "redirect to a host with other bytes": (6, 0, "many-0"),
    "another file under the name": (6, 0, "many-3"),
    "tampered wheel, and its hash on the page": (5, 0, "many-2"),
    "path-traversing wheel": (6, None, "hostile 1.0 has files that lead outside"),
    "absolute path in a wheel": (6, None, "hostile 1.0 has files that lead outside"),
    "RECORD that leads outside": (0, None, "complete: 1"),
    "link planted at the folder": (11, 0, "intact: True"),
    "link planted at the lock": (6, 0, "intact: True"),
    "link planted at the marker": (6, 0, "intact: True"),
    "world-writable parent": (11, None, "anybody may write"),
    "two installers at once": (0, None, "8 files served for 8 wheels"),
    "a holder that does not end": (13, 0, "is still at work on"),
    "Ctrl-C while fetching": (130, 0, "children alive: 0"),
    "Ctrl-C while compiling": (130, 0, "children alive: 0"),
    "Ctrl-C while proving": (130, 0, "children alive: 0"),
    "SIGTERM while compiling": (130, 0, "children alive: 0"),
    "clock set back afterwards": (0, 0, "bytecode written anew: 0"),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Return a world with an environment in use, made once."""
    world = make_world(tmp_path_factory.mktemp("world"), wheels=6, modules=8)
    yield world
    world.server.stop()


@pytest.fixture
def world(made, monkeypatch):
    """Return the world as it was made: `old` in use, nothing of `new`, an honest index, an empty cache."""
    monkeypatch.setenv("VERL_ENV_HOME", str(made.home))
    monkeypatch.setenv("UV_CACHE_DIR", str(made.cache))
    yield made
    made.server.how, made.server.swapped, made.server.served = "", {}, 0
    if made.server.server is None:
        made.server.start()
    step_back_to(made.path("old"))
    for folder in made.environments.glob("*"):
        if folder != made.path("old"):
            remove_environment(folder)
    for name in ("small", "small-cache", "read-only", "open", "victim"):
        shutil.rmtree(made.folder / name, ignore_errors=True)
    shutil.rmtree(made.cache, ignore_errors=True)


@pytest.mark.parametrize("name", EXPECTED)
def test_fault(world, name):
    """The fault ends with its exit code and its name, nothing half is left, and the rerun is good."""
    try:
        seen = SCENARIOS[name](world)
    except NotHereError as err:
        pytest.skip(str(err))
    code, again, words = EXPECTED[name]
    assert (code, again) == (seen.code, seen.rerun), seen.said
    assert words in f"{seen.said}\n{seen.note}"
    assert [] == [it for it in seen.left if not it.endswith(".lock")]


def test_kills_at_steps(world):
    """Killed before every ninth change that an installation makes: the old environment works, the rerun ends well."""
    outcomes = {}
    kills.install_steps(world, outcomes, 9)
    assert sum(it.kills for it in outcomes.values()) > 8
    assert [] == [line for it in outcomes.values() for line in it.failures]


@pytest.mark.parametrize("alone", [False, True], ids=["the whole tree", "verl-env alone"])
@pytest.mark.parametrize("phase", ["fetch", "compile"])
def test_kills_while_uv_works(world, phase, alone):
    """Killed while uv fetches or compiles; an orphaned uv keeps the lock until it ends."""
    outcome = kills.Outcome()
    kills.moments(world, outcome, phase, 1, random.Random(1), alone=alone)  # noqa: S311 - moments, not secrets
    assert (1, []) == (outcome.kills, outcome.failures)


def test_kills_of_rollback_and_prune(world):
    """Killed before each of their steps: what is in use is whole, the rerun ends well."""
    outcomes = {}
    kills.prune_steps(world, outcomes, 1, random.Random(1))  # noqa: S311
    kills.rollback_steps(world, outcomes, 1)
    assert sum(it.kills for it in outcomes.values()) > 12
    assert [] == [line for it in outcomes.values() for line in it.failures]
