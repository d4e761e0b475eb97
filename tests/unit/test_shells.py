"""Exports written for shells and readers; that real ones read them so: tests/functional/test_exports_in_shells.py."""

from __future__ import annotations

import json

import pytest

from verl_env.environment.activation import Activation, inheriting, sealed, values_of
from verl_env.environment.exports import Export
from verl_env.environment.library_path import Part
from verl_env.environment.shells import FORMATS, render_exports


def activation(*exports, environ=None, **parts):
    return Activation(folder="/envs/a", exports=exports, environ=environ or {}, **parts)


def rendered(form, *, value="v", how="set", environ=None, name="A"):
    """Write one export."""
    return render_exports(activation(Export(name=name, value=value, how=how, why=""), environ=environ), form)


@pytest.mark.parametrize(
    ("form", "how", "text"),
    [
        pytest.param("sh", "set", "\nexport A=v\n", id="sh set"),
        pytest.param("sh", "unset", "\nunset A\n", id="sh unset"),
        pytest.param("sh", "default", '\nif [ -z "${A-}" ]; then export A=v; fi\n', id="sh default"),
        pytest.param("fish", "set", "\nset -gx A 'v'\n", id="fish set"),
        pytest.param("fish", "unset", "\nset -e A\n", id="fish unset"),
        pytest.param("fish", "default", "\nif test -z \"$A\"\n    set -gx A 'v'\nend\n", id="fish default"),
    ],
)
def test_scripts(form, how, text):
    """One change a variable, in the shell's own words, between what keeps its value and what gives it back."""
    assert text in rendered(form, how=how)


@pytest.mark.parametrize(
    ("form", "how", "text"),
    [
        pytest.param("dotenv", "set", "A=v\n", id="dotenv set"),
        pytest.param("dotenv", "unset", "", id="dotenv cannot unset"),
        pytest.param("json", "unset", "{}\n", id="JSON holds what is left set"),
        pytest.param("docker", "set", 'ENV A="v"\n', id="docker set"),
        pytest.param("docker", "default", 'ENV A="v"\n', id="docker default"),
        pytest.param("docker", "prepend", 'ENV A="v${A:+:$A}"\n', id="docker prepend"),
        pytest.param("docker", "unset", "", id="docker cannot unset"),
    ],
)
def test_files(form, how, text):
    """One line a variable."""
    assert text == rendered(form, how=how)


@pytest.mark.parametrize(("name", "text"), [("PYTHONPATH", 'ENV PYTHONPATH=""\n'), ("CONDA_PREFIX", "")])
def test_images_empty_what_empty_unsets(name, text):
    """Python takes an empty PYTHONPATH for none; an empty CONDA_PREFIX would lead inductor to folders of the root."""
    assert text == rendered("docker", how="unset", name=name)


@pytest.mark.parametrize("form", ["dotenv", "json"])
def test_lists_are_joined_for_readers_that_cannot(form):
    """Dotenv and JSON hold whole values: what was there is behind ours."""
    text = rendered(form, how="prepend", environ={"A": "/old"})
    assert "v:/old" == (json.loads(text)["A"] if form == "json" else text.strip().removeprefix("A="))


@pytest.mark.parametrize(
    ("value", "written"),
    [
        pytest.param("a b", "'a b'", id="blank"),
        pytest.param("it's", "'it'\"'\"'s'", id="quote"),
        pytest.param("=ls", "'=ls'", id="zsh would take =ls for the path of ls"),
        pytest.param("$HOME", "'$HOME'", id="dollar"),
        pytest.param("", "''", id="empty"),
    ],
)
def test_sh_quoting(value, written):
    """What a shell could read otherwise is quoted."""
    assert f"\nexport A={written}\n" in rendered("sh", value=value)


@pytest.mark.parametrize("form", FORMATS)
def test_a_value_cannot_become_a_command(form):
    """A line end inside a value begins no line that is read by itself, but for a file whose quotes may hold lines."""
    lines = rendered(form, value="a\nrm -rf x").splitlines()
    inside = [line for line in lines if line.strip().startswith("rm -rf x")]
    quoted = {"sh", "bash", "zsh", "slurm", "fish", "dotenv"}
    assert (["rm -rf x'"] if form in quoted else []) == inside


@pytest.mark.parametrize("form", ["bash", "zsh"])
def test_heirs_of_sh(form):
    """One text for sh and its heirs."""
    assert rendered("sh") == rendered(form)


def test_ray_has_the_environments_python():
    """Workers start with it, lists go in front of theirs, and what cannot be unset is empty."""
    exports = (
        Export(name="PATH", value="/cuda/bin", how="prepend", why=""),
        Export(name="PATH", value="/envs/a/bin", how="prepend", why=""),
        Export(name="PYTHONPATH", value="", how="unset", why=""),
        Export(name="CONDA_PREFIX", value="", how="unset", why=""),
        Export(name="RAY_ENABLE_UV_RUN_RUNTIME_ENV", value="0", how="set", why=""),
    )
    spec = json.loads(render_exports(activation(*exports, environ={"PATH": "/usr/bin"}), "ray"))
    assert "/envs/a/bin/python" == spec["py_executable"]
    expected = {"PATH": "/envs/a/bin:/cuda/bin:${PATH}", "PYTHONPATH": "", "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0"}
    assert expected == spec["env_vars"]


PARTS = (Part(folder="/a", kept=True, why=""), Part(folder="/b", kept=False, why=""))


def test_the_librarys_list_is_filtered():
    """Programs get what stays of LD_LIBRARY_PATH, and files say so, an emptied list as an empty one."""
    environ = {"LD_LIBRARY_PATH": "/a:/b"}
    it = activation(environ=environ, parts=PARTS)
    assert ({"LD_LIBRARY_PATH": "/a"}, {"LD_LIBRARY_PATH": "/a"}) == (sealed(it), values_of(it))
    emptied = activation(environ={"LD_LIBRARY_PATH": "/b"}, parts=PARTS[1:])
    assert ({}, {"LD_LIBRARY_PATH": ""}) == (sealed(emptied), values_of(emptied))
    untouched = activation(environ={"LD_LIBRARY_PATH": "/a"}, parts=PARTS[:1])
    assert ({"LD_LIBRARY_PATH": "/a"}, {}) == (sealed(untouched), values_of(untouched))


def test_inheriting_lets_in():
    """What keeps others out is left away, and nothing else."""
    exports = (Export(name="PYTHONPATH", value="", how="unset", why=""), Export(name="A", value="1", how="set", why=""))
    environ = {"LD_LIBRARY_PATH": "/a:/b", "PYTHONPATH": "/mine"}
    it = inheriting(activation(*exports, environ=environ, parts=PARTS, owned=("libcudart.so",)))
    assert {"LD_LIBRARY_PATH": "/a:/b", "PYTHONPATH": "/mine", "A": "1"} == sealed(it)
    assert "LD_LIBRARY_PATH" not in render_exports(it, "sh")
