"""The variables an environment needs, decided from what a node has."""

from __future__ import annotations

from dataclasses import replace

import pytest

from made import lock_for
from verl_env.environment.exports import Export, Surroundings, applied, exports_of
from verl_env.node.facts import Toolkit

FOLDER = "/envs/a"


def toolkit(version, path="/usr/local/cuda-x"):
    """Return a toolkit whose nvcc says `version`."""
    return Toolkit(path=path, source="tests", version=version)


def exported(facts, *toolkits, cuda="13.0", **around):
    """Return the exports by name, and the notes."""
    table = replace(lock_for(facts).table, cuda=cuda)
    found, notes = exports_of(table, FOLDER, Surroundings(toolkits=toolkits, **around))
    return {(it.name, it.how): it for it in found}, notes


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        pytest.param(["13.0.88"], "/cuda0", id="the row's minor, any patch"),
        pytest.param(["12.9.86", "13.0.48"], "/cuda1", id="the right one of two"),
        pytest.param(["13.1.80"], None, id="a newer minor is not taken"),
        pytest.param(["12.9.86"], None, id="an older major is not taken"),
        pytest.param([None], None, id="one whose nvcc does not say"),
        pytest.param([], None, id="none here"),
    ],
)
def test_cuda_home_is_of_the_rows_minor(facts, versions, expected):
    """CUDA_HOME names a toolkit of the row's own minor, or is unset and the note says what will not work."""
    toolkits = [toolkit(version, f"/cuda{number}") for number, version in enumerate(versions)]
    exports, notes = exported(facts, *toolkits)
    if expected:
        assert (expected, expected, ()) == (exports["CUDA_HOME", "set"].value, exports["CUDA_PATH", "set"].value, notes)
    else:
        assert {("CUDA_HOME", "unset"), ("CUDA_PATH", "unset")} <= set(exports)
        assert "no CUDA 13.0 toolkit is on this node" in notes[0]


def test_note_names_toolkits_of_other_minors(facts):
    """What is here and was not taken is named, so that nobody wonders."""
    _, notes = exported(facts, toolkit("12.9.86", "/usr/local/cuda-12.9"))
    assert "(found: 12.9.86 at /usr/local/cuda-12.9)" in notes[0]


def test_note_names_what_will_not_work(facts):
    """What compiles at run time is named one by one, and so is why the environment's own toolkit is none."""
    own = Toolkit(path=f"{FOLDER}/cuda", source="tests", error="it lacks nvidia-cuda-cccl")
    _, notes = exported(facts, own, compiling=("flashinfer's JIT", "DeepGEMM"))
    assert "(found: it lacks nvidia-cuda-cccl at /envs/a/cuda)" in notes[0]
    assert notes[0].endswith("Without nvcc these do not work: flashinfer's JIT, DeepGEMM")


def test_nvcc_comes_after_the_environments_programs(facts):
    """PATH gets the environment's bin, then the toolkit's: a program of both is the environment's."""
    table = replace(lock_for(facts).table, cuda="13.0")
    exports, _ = exports_of(table, FOLDER, Surroundings(toolkits=(toolkit("13.0.88", "/cuda"),)))
    assert f"{FOLDER}/bin:/cuda/bin:/usr/bin" == applied(exports, {"PATH": "/usr/bin"})["PATH"]


def test_cpu_row_leaves_cuda_home_alone(facts):
    """A CPU row neither sets nor unsets CUDA_HOME."""
    exports, notes = exported(facts, toolkit("13.0.88"), cuda=None)
    assert ([], ()) == ([name for name, _ in exports if name == "CUDA_HOME"], notes)


def test_library_folder_only_when_needed(facts):
    """LD_LIBRARY_PATH is exported only where libcuda is found no other way."""
    without, _ = exported(facts)
    assert [] == [name for name, _ in without if name == "LD_LIBRARY_PATH"]
    needed, _ = exported(facts, library_folder="/usr/local/nvidia/lib64")
    assert "/usr/local/nvidia/lib64" == needed["LD_LIBRARY_PATH", "prepend"].value


@pytest.mark.parametrize(("packages", "expected"), [({"ray": "2.60.0"}, "0"), ({}, None)])
def test_ray_keeps_to_this_environment(facts, packages, expected):
    """Where Ray is in the set, its way of handing on the driver's `uv run` is off."""
    table = replace(lock_for(facts).table, set=packages)
    found, _ = exports_of(table, FOLDER, Surroundings())
    assert expected == applied(found, {}).get("RAY_ENABLE_UV_RUN_RUNTIME_ENV")


def test_environment_is_sealed(facts):
    """Other people's modules do not get in."""
    exports, _ = exported(facts)
    sealed = {("PYTHONPATH", "unset"), ("PYTHONHOME", "unset"), ("PYTHONNOUSERSITE", "set"), ("CONDA_PREFIX", "unset")}
    assert sealed <= set(exports)
    assert FOLDER == exports["VIRTUAL_ENV", "set"].value


def test_a_rows_own_variables_come_last(facts):
    """What a row asks for is exported, and wins over what was there."""
    table = lock_for(facts, exports={"NCCL_CUMEM_ENABLE": "0"}).table
    found, _ = exports_of(table, FOLDER, Surroundings())
    assert ("NCCL_CUMEM_ENABLE", "0", "the row") == (found[-1].name, found[-1].value, found[-1].why)


@pytest.mark.parametrize(
    ("how", "value", "before", "after"),
    [
        pytest.param("set", "x", "old", "x", id="set over what was there"),
        pytest.param("set", "", "old", "", id="set to nothing"),
        pytest.param("unset", "", "old", None, id="unset"),
        pytest.param("unset", "", None, None, id="unset what is not there"),
        pytest.param("default", "x", "old", "old", id="default: what is set stays"),
        pytest.param("default", "x", "", "x", id="default over nothing"),
        pytest.param("default", "x", None, "x", id="default where it is not set"),
        pytest.param("prepend", "/x", "/a:/b", "/x:/a:/b", id="prepend"),
        pytest.param("prepend", "/x", None, "/x", id="prepend to nothing: no empty part"),
        pytest.param("prepend", "/x", "", "/x", id="prepend to empty: no empty part"),
        pytest.param("prepend", "/x", "/x:/a", "/x:/a", id="already in front: not twice"),
        pytest.param("prepend", "/x", "/a:/x", "/x:/a", id="further back: moved to the front"),
    ],
)
def test_applied(how, value, before, after):
    """How exports change variables; an empty part of a list would mean the working folder."""
    environ = {} if before is None else {"A": before}
    assert after == applied((Export(name="A", value=value, how=how, why=""),), environ).get("A")


def test_applied_leaves_its_argument_alone():
    """The caller's variables stay as they are."""
    environ = {"A": "old"}
    applied((Export(name="A", value="new", how="set", why=""),), environ)
    assert {"A": "old"} == environ
