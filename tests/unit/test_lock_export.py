"""A lock in other tools' forms."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from packaging.requirements import Requirement

from made import lock_for, pins_for, urls_of
from tiny import ROOT
from verl_env.lock.docker import UV_SHA256, UV_VERSION, render_dockerfile
from verl_env.lock.export import render_constraints, render_requirements
from verl_env.lock.lockfile import sealed
from verl_env.lock.table import Editable
from verl_env.matrix.pins import Pin


@pytest.fixture
def lock(facts):
    """Return a lock with a source of its own, an sdist and exports."""
    return lock_for(facts, exports={"A": 'q"u$o\\te'})


def lines_of(text):
    """Return the lines that are not comments."""
    return [it for it in text.splitlines() if it and not it.startswith("#")]


def test_requirements(lock):
    """One exact, hashed line a package, by name; the head says what the list cannot."""
    text = render_requirements(lock)
    assert [
        f"{name}=={version} --hash=sha256:{sha * 64}"
        for name, version, sha in (
            ("antlr4-python3-runtime", "4.9.3", "c"),
            ("torch", "2.11.0+cu130", "b"),
            ("verl", "0.9.1", "a"),
        )
    ] == lines_of(text)
    assert "# Not on the default index, but on `pytorch-cu130`: torch" in text
    assert "# Built from source: antlr4-python3-runtime, with setuptools==80.10.2" in text
    assert lock.table.digest in text


def test_constraints(lock):
    """Versions only: each a requirement that packaging reads."""
    found = [Requirement(it) for it in lines_of(render_constraints(lock))]
    assert ["antlr4-python3-runtime==4.9.3", "torch==2.11.0+cu130", "verl==0.9.1"] == [str(it) for it in found]


def layers_of(text):
    """Return the content of each list that the Dockerfile writes, by name."""
    return dict(re.findall(r"^COPY <<'EOF' /opt/verl-env-lock/(\S+)\n(.*?)\nEOF$", text, re.MULTILINE | re.DOTALL))


def test_dockerfile_layers(lock, facts):
    """Layers from the largest to what changes most; together they are the lock, and no package is in two."""
    layers = layers_of(render_dockerfile(lock, facts))
    assert ["uv.txt", "build.txt", "1-cuda.txt", "2-rest.txt", "3-verl.txt"] == list(layers)
    packages = [line for name, text in layers.items() if name[0].isdigit() for line in text.splitlines()]
    assert sorted(lines_of(render_requirements(lock))) == sorted(packages)
    assert layers["3-verl.txt"].startswith("verl==")


def test_dockerfile_of_the_row(lock, facts):
    """The base image is of the lock's Python, the platform its architecture; the label is its digest."""
    text = render_dockerfile(lock, facts)
    assert "FROM --platform=linux/amd64 python:3.12-slim" in text
    assert f'verl-env.digest="{lock.table.digest}"' in text
    assert 'ENV A="q\\"u\\$o\\\\te"' in text


def test_dockerfile_sources_are_arguments(lock, facts):
    """The one index that is named is the matrix's for a source, and can be overridden."""
    text = render_dockerfile(lock, facts)
    url = facts.source("pytorch-cu130").url
    assert [f'ARG INDEX_PYTORCH_CU130="{url}"'] == re.findall(r"^ARG INDEX.*$", text, re.MULTILINE)
    assert [url] == re.findall(r"https?://[^\"\s]+", text)
    assert 1 == text.count('--index "$INDEX_PYTORCH_CU130"')


def test_added_packages_are_in_the_last_layer(lock, facts):
    """What was added to the row changes most, and so does not rebuild the layers below."""
    extra = Pin(name="nvidia-mine", version="1", file="nvidia_mine-1-py3-none-any.whl", size=1, sha256="e" * 64)
    pins = pins_for(extra=(extra,))
    other = lock_for(facts, pins)
    other = sealed(replace(other, table=replace(other.table, added=("nvidia-mine",)), urls=urls_of(pins)))
    one, two = layers_of(render_dockerfile(lock, facts)), layers_of(render_dockerfile(other, facts))
    assert (one["1-cuda.txt"], one["2-rest.txt"]) == (two["1-cuda.txt"], two["2-rest.txt"])
    assert "nvidia-mine==1" in two["3-verl.txt"]


def test_a_checkout(lock, facts):
    """A checkout is a build context of its own in the image, and a comment in requirements."""
    table = replace(lock.table, editable=Editable(name="verl", path="../verl"))
    other = replace(lock, table=table)
    assert "COPY --from=checkout . /opt/verl" in render_dockerfile(other, facts)
    assert "pip install --no-deps -e ../verl" in render_requirements(other)


def test_uv_is_install_shs():
    """The uv in an image is the very one that install.sh brings."""
    text = (ROOT / "install.sh").read_text()
    found = {name.lower(): value for name, value in re.findall(r'^UV_WHEEL_SHA256_(\w+)="(\w+)"', text, re.MULTILINE)}
    assert (UV_SHA256, f'UV_VERSION="{UV_VERSION}"') == (found, re.search(r"^UV_VERSION=.*$", text, re.MULTILINE)[0])
