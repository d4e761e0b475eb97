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
    laid = {"toolkits": toolkits, "hugging_face": ("/hf", "it was set")}
    found, notes = exports_of(table, FOLDER, Surroundings(**(laid | around)))
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
        assert (expected, ()) == (exports["CUDA_HOME", "set"].value, notes)
    else:
        assert ("CUDA_HOME", "unset") in exports
        assert "no CUDA 13.0 toolkit is on this node" in notes[0]


def test_note_names_toolkits_of_other_minors(facts):
    """What is here and was not taken is named, so that nobody wonders."""
    _, notes = exported(facts, toolkit("12.9.86", "/usr/local/cuda-12.9"))
    assert "(found: 12.9.86 at /usr/local/cuda-12.9)" in notes[0]


def test_nvcc_comes_after_the_environments_programs(facts):
    """PATH gets the environment's bin and the toolkit's; a later prepend stands further in front."""
    table = replace(lock_for(facts).table, cuda="13.0")
    around = Surroundings(toolkits=(toolkit("13.0.88", "/cuda"),), hugging_face=("/hf", "set"))
    exports, _ = exports_of(table, FOLDER, around)
    assert {f"{FOLDER}/bin", "/cuda/bin", "/usr/bin"} == set(applied(exports, {"PATH": "/usr/bin"})["PATH"].split(":"))


def test_cpu_row_leaves_cuda_home_alone(facts):
    """A CPU row neither sets nor unsets CUDA_HOME."""
    exports, notes = exported(facts, toolkit("13.0.88"), cuda=None)
    assert ([], ()) == ([name for name, _ in exports if name == "CUDA_HOME"], notes)


def test_hugging_face_home_is_kept_with_its_reason(facts):
    """HF_HOME is what was decided, and `why` says how."""
    exports, _ = exported(facts)
    assert ("/hf", "it was set") == (exports["HF_HOME", "set"].value, exports["HF_HOME", "set"].why)


def test_token_and_library_folder_only_when_needed(facts):
    """HF_TOKEN_PATH and LD_LIBRARY_PATH are exported only where there is a reason."""
    without, _ = exported(facts)
    assert [] == [name for name, _ in without if name in ("HF_TOKEN_PATH", "LD_LIBRARY_PATH")]
    with_both, _ = exported(facts, token_file="/old/token", library_folder="/usr/local/nvidia/lib64")
    assert "/old/token" == with_both["HF_TOKEN_PATH", "set"].value
    assert "/usr/local/nvidia/lib64" == with_both["LD_LIBRARY_PATH", "prepend"].value


def test_environment_is_sealed(facts):
    """Other people's modules do not get in."""
    exports, _ = exported(facts)
    assert {("PYTHONPATH", "unset"), ("PYTHONHOME", "unset"), ("PYTHONNOUSERSITE", "set")} <= set(exports)
    assert FOLDER == exports["VIRTUAL_ENV", "set"].value


def test_a_rows_own_variables_come_last(facts):
    """What a row asks for is exported, and wins over what was there."""
    table = lock_for(facts, exports={"NCCL_CUMEM_ENABLE": "0"}).table
    found, _ = exports_of(table, FOLDER, Surroundings(toolkits=(), hugging_face=("/hf", "set")))
    assert ("NCCL_CUMEM_ENABLE", "0", "the row") == (found[-1].name, found[-1].value, found[-1].why)


@pytest.mark.parametrize(
    ("how", "value", "before", "after"),
    [
        pytest.param("set", "x", "old", "x", id="set over what was there"),
        pytest.param("set", "", "old", "", id="set to nothing"),
        pytest.param("unset", "", "old", None, id="unset"),
        pytest.param("unset", "", None, None, id="unset what is not there"),
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
