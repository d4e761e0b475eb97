"""`verl-env lock --editable`: a checkout over the pins, locked by commit, what it declares held against them."""

from __future__ import annotations

import subprocess
import textwrap

import pytest

from tiny import ROOT, build_wheel
from verl_env.lock.read import read_lock

LOCK = "pylock.tiny.toml"
# A build backend of a few lines, inside of the checkout: no index has setuptools here.
BACKEND = """
import base64, hashlib, os, zipfile
def get_requires_for_build_editable(config_settings=None): return []
def get_requires_for_build_wheel(config_settings=None): return []
def build_editable(folder, config_settings=None, metadata_directory=None):
    here = os.path.dirname(os.path.abspath(__file__))
    files = {"verl.pth": here + "/src\\n", "verl-99.1.dist-info/METADATA": "Metadata-Version: 2.1\\nName: verl\\nVersion: 99.1\\n",
             "verl-99.1.dist-info/WHEEL": "Wheel-Version: 1.0\\nGenerator: t\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"}
    record = "".join(f"{n},sha256={base64.urlsafe_b64encode(hashlib.sha256(t.encode()).digest()).rstrip(b'=').decode()},{len(t)}\\n" for n, t in files.items())
    name = "verl-99.1-0.editable-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(folder, name), "w") as wheel:
        for n, t in {**files, "verl-99.1.dist-info/RECORD": record + "verl-99.1.dist-info/RECORD,,\\n"}.items(): wheel.writestr(n, t)
    return name
"""
PROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "verl"
version = "99.1"
dependencies = ["torch>=2", "tiny-sub"]
[project.optional-dependencies]
gpu = ["torch<99"]
all = ["verl[gpu]", "leaf; python_version < '3'"]
"""


def git(folder, *words):
    """Run git as somebody with a name."""
    names = ["-c", "user.name=me", "-c", "user.email=me@index.example", "-c", "init.defaultBranch=main"]
    return subprocess.run(
        ["git", *names, *words], cwd=folder, check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.fixture
def checkout(tiny):
    """Return a committed checkout of verl beside where the lock will be."""
    folder = tiny.work / "verl"
    (folder / "src/verl").mkdir(parents=True)
    (folder / "src/verl/__init__.py").write_text("__version__ = 'of the checkout'\n")
    (folder / "backend.py").write_text(BACKEND)
    (folder / "pyproject.toml").write_text(PROJECT)
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "one")
    return folder


def test_locked_by_commit(tiny, checkout):
    """The lock has the row's packages without verl, and names path, commit and what the checkout declares."""
    done = tiny("lock", "--cpu", "--editable", "./verl", "--json")
    assert 0 == done.code, done.err
    locked = read_lock(tiny.work / LOCK)
    assert ["tiny-sub", "torch"] == [pin.name for pin in locked.pins]
    editable = locked.table.editable
    assert ("verl", "verl", "99.1", git(checkout, "rev-parse", "HEAD")) == (
        editable.name, editable.path, editable.version, editable.commit,
    )  # fmt: skip
    assert (("torch>=2", "tiny-sub"), False, False) == (editable.dependencies, editable.dirty, editable.pushed)
    assert "no remote branch is known to have that commit" in " ".join(done.json["data"]["notes"])
    assert str(tiny.work) not in (tiny.work / LOCK).read_text()
    assert 0 == tiny("lock", "--check").code


def test_installed_over_the_pins(tiny, checkout):
    """The environment imports the checkout; a second checkout of the same commit is another environment."""
    assert 0 == tiny("lock", "--cpu", "--editable", "./verl").code
    done = tiny("install", tiny.work / LOCK, "--json")
    assert 0 == done.code, done.err
    said = tiny("run", "--", "python", "-c", "import verl; print(verl.__version__, verl.__file__)")
    assert f"of the checkout {checkout}/src/verl/__init__.py" == said.out.strip()
    assert done.json["data"]["folder"] == tiny("install", tiny.work / LOCK, "--json").json["data"]["folder"]
    other = tiny.work / "other"
    git(tiny.work, "clone", "-q", "./verl", str(other / "verl"))
    (other / LOCK).write_text((tiny.work / LOCK).read_text())
    second = tiny("install", other / LOCK, "--json")
    assert (0, True) == (second.code, second.json["data"]["folder"] != done.json["data"]["folder"]), second.err


def test_what_others_lack_is_said(tiny, checkout):
    """Changes that no commit holds and a moved HEAD are notes of the lock and of the environment."""
    (checkout / "src/verl/__init__.py").write_text("__version__ = 'changed'\n")
    done = tiny("lock", "--cpu", "--editable", "./verl")
    assert "verl has changes that no commit holds" in done.err
    git(checkout, "commit", "-qam", "two")
    done = tiny("lock", "--check")
    assert (1, True) == (done.code, "editable.commit" in done.out)
    done = tiny("install", tiny.work / LOCK)
    assert (0, True) == (done.code, "and the lock was made at" in done.err), done.err


def test_a_missing_checkout(tiny, checkout):
    """Without the checkout the lock cannot be installed; --check goes by what the lock says."""
    assert 0 == tiny("lock", "--cpu", "--editable", "./verl").code
    checkout.rename(tiny.work / "moved")
    done = tiny("install", tiny.work / LOCK)
    assert (11, True) == (done.code, "there is none at `verl`" in done.err), done.err
    done = tiny("lock", "--check")
    assert (0, True) == (done.code, "is not here" in done.err)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        pytest.param('"torch>=2"', '"torch<2"', "`torch<2` (declared by verl): torch is 2.13.0", id="a clash"),
        pytest.param('"torch>=2"', '"torch", "leaf>1"', "`leaf>1` (declared by verl): leaf is not among", id="missing"),
    ],
)
def test_declared_dependencies(tiny, checkout, old, new, said):
    """Every declared dependency that the pins do not meet is named; --allow records that it was set aside."""
    path = checkout / "pyproject.toml"
    path.write_text(path.read_text().replace(old, new))
    done = tiny("lock", "--cpu", "--editable", "verl")
    assert (5, True) == (done.code, said in done.err), done.err
    done = tiny("lock", "--cpu", "--editable", "verl", "--allow", "editable-requirement")
    assert (0, ("editable-requirement",)) == (done.code, read_lock(tiny.work / LOCK).table.allow)
    assert 0 == tiny("lock", "--check").code


def test_a_missing_dependency_can_be_added(tiny, checkout, wheels):
    """What the checkout declares and the row lacks is added as a wish, which the error names."""
    path = checkout / "pyproject.toml"
    path.write_text(path.read_text().replace('"torch>=2"', '"torch", "leaf"'))
    leaf = build_wheel(wheels["torch"].parent, "leaf", "1.0")
    try:
        assert "add --with 'leaf'" in tiny("lock", "--cpu", "--editable", "verl").err
        assert 0 == tiny("lock", "--cpu", "--editable", "verl", "--with", "leaf").code
    finally:
        leaf.unlink()
    assert ("leaf",) == read_lock(tiny.work / LOCK).table.added


@pytest.mark.parametrize(
    ("script", "dependencies"),
    [
        pytest.param("install_requires = ['torch'] + ['tiny-sub']\nsetup(name='verl', install_requires=install_requires)", ("torch", "tiny-sub"), id="lists"),
        pytest.param("A = ['torch']\nsetup(name='verl', version='1', install_requires=A)", ("torch",), id="a name"),
        pytest.param("A = ['torch']\nA.append('x')\nsetup(name='verl', install_requires=A)", None, id="changed later"),
        pytest.param("A = ['torch']\nif 1:\n    A += ['x']\nsetup(name='verl', install_requires=A)", None, id="added to"),
        pytest.param("setup(name='verl', install_requires=open('r.txt').read().split())", None, id="read from a file"),
    ],
)  # fmt: skip
def test_setup_py(tiny, checkout, script, dependencies):
    """What setup.py says plainly is read without running it; what it computes is not known, and that is said."""
    (checkout / "pyproject.toml").unlink()
    (checkout / "setup.py").write_text(f"from setuptools import setup\nraise SystemExit('it ran')\n{script}\n")
    done = tiny("lock", "--cpu", "--editable", "verl")
    assert 0 == done.code, done.err
    assert dependencies == read_lock(tiny.work / LOCK).table.editable.dependencies
    assert (dependencies is None) == ("cannot be read statically" in done.err)


def test_a_remote_without_its_login(tiny, checkout):
    """The remote's address is in the lock, a login in it is not."""
    git(checkout, "remote", "add", "origin", "https://me:s3cret@index.example/verl.git")
    done = tiny("lock", "--cpu", "--editable", "verl", "--json")
    assert "https://index.example/verl.git" == read_lock(tiny.work / LOCK).table.editable.remote
    assert "s3cret" not in (tiny.work / LOCK).read_text() + done.out + done.err


@pytest.mark.parametrize(
    ("content", "code", "said"),
    [
        pytest.param("not toml [", 10, "cannot be read", id="damaged"),
        pytest.param("[project]\nname = 'another'\n", 2, "row tiny does not have", id="another package"),
        pytest.param("[tool.x]\na = 1\n", 2, "states no package name", id="no name"),
    ],
)
def test_what_is_no_checkout(tiny, checkout, content, code, said):
    """A folder that is no checkout of a pinned package is refused, and nothing is written."""
    (checkout / "pyproject.toml").write_text(content)
    done = tiny("lock", "--cpu", "--editable", "verl")
    assert (code, True, False) == (done.code, said in done.err, (tiny.work / LOCK).exists()), done.err


def test_this_checkout_is_read():
    """A real project's pyproject.toml is read: verl-env's own."""
    from verl_env.lock.checkout import _project

    name, _, dependencies = _project(ROOT, {})
    assert ("verl-env", True) == (name, any(it.startswith("packaging") for it in dependencies))
    assert textwrap.dedent(PROJECT) == PROJECT
