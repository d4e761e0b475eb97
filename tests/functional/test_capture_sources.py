"""Packages that are built: from an sdist with a pinned build, and from a repository by commit."""

from __future__ import annotations

import io
import json
import subprocess
import tarfile

import pytest

from teammate import add, elsewhere, git, site_of
from tiny import build_wheel, pin_of
from verl_env.lock.read import read_lock

# A build back end of a few lines: it makes a wheel of one module, whose text names the back end that made it.
BACKEND = """
import base64, hashlib, os, zipfile

VERSION = "{version}"

def build_wheel(folder, config_settings=None, metadata_directory=None):
    info = "stone-1.0.dist-info"
    files = {{"stone.py": open("stone.py").read() + f"BUILT_BY = {{VERSION!r}}\\n",
             f"{{info}}/METADATA": "Metadata-Version: 2.1\\nName: stone\\nVersion: 1.0\\n",
             f"{{info}}/WHEEL": "Wheel-Version: 1.0\\nGenerator: t\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"}}
    record = ""
    for name, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        record += f"{{name}},sha256={{digest}},{{len(text)}}\\n"
    with zipfile.ZipFile(os.path.join(folder, "stone-1.0-py3-none-any.whl"), "w") as wheel:
        for name, text in {{**files, f"{{info}}/RECORD": record + f"{{info}}/RECORD,,\\n"}}.items():
            wheel.writestr(name, text)
    return "stone-1.0-py3-none-any.whl"
"""
PROJECT = """
[build-system]
requires = ["{needs}"]
build-backend = "tiny_build"
[project]
name = "stone"
version = "1.0"
"""


def add_backend(folder, version="1.0"):
    """Put the back end on the index, as a wheel."""
    files = {"tiny_build.py": BACKEND.format(version=version)}
    return build_wheel(folder, "tiny-build", version, files=files)


def write_source(folder, needs="tiny-build>=1"):
    """Write the project `stone` into a folder."""
    folder.mkdir(parents=True)
    (folder / "pyproject.toml").write_text(PROJECT.format(needs=needs))
    (folder / "stone.py").write_text("HARD = True\n")
    return folder


def add_sdist(folder, needs="tiny-build>=1"):
    """Put `stone` on the index as an sdist alone."""
    files = {
        "pyproject.toml": PROJECT.format(needs=needs),
        "stone.py": "HARD = True\n",
        "PKG-INFO": "Metadata-Version: 2.2\nName: stone\nVersion: 1.0\n",
    }
    with tarfile.open(folder / "stone-1.0.tar.gz", "w:gz") as archive:
        for name, text in files.items():
            about = tarfile.TarInfo(f"stone-1.0/{name}")
            about.size = len(text)
            archive.addfile(about, io.BytesIO(text.encode()))


@pytest.fixture
def quarry(tiny, serve, wheels, tmp_path):
    """Return verl-env with an environment of the row `tiny`, and an index of its own to add sources to."""
    folder = tmp_path / "quarry"
    folder.mkdir()
    for name in ("torch", "verl", "tiny-sub"):
        (folder / wheels[name].name).write_bytes(wheels[name].read_bytes())
    add_backend(folder)
    tiny.index = serve(folder)
    assert tiny("install", "--cpu").code == 0
    return tiny


def captured(tool, *words):
    """Capture the environment in use; return what was done, and the lock."""
    done = tool("capture", "current", "-o", "pylock.captured.toml", *words)
    assert done.code == 0, done.err
    return done, read_lock(tool.work / "pylock.captured.toml")


def test_an_sdist_is_built_with_what_the_lock_pins(quarry, tmp_path):
    """The lock pins the build back end by hash; elsewhere the same one builds it, and nothing differs."""
    add_sdist(quarry.index.folder)
    add(quarry.current.resolve(), quarry, "stone")
    done, lock = captured(quarry)
    assert "1 packages built from source again" in done.out
    assert "builds get tiny-build 1.0" in done.out
    assert (("stone",), (pin_of(quarry.index.folder / "tiny_build-1.0-py3-none-any.whl"),)) == (
        lock.table.captured.built,
        lock.table.build,
    )
    add_backend(quarry.index.folder, "2.0")
    other = elsewhere(quarry, tmp_path)
    built = other("install", quarry.work / "pylock.captured.toml")
    assert built.code == 0, built.err
    assert "BUILT_BY = '1.0'" in (site_of(other.current.resolve()) / "stone.py").read_text()
    assert 0 == other("diff", quarry.current.resolve(), other.current.resolve()).code


def test_another_backend_under_the_pinned_name_builds_nothing(quarry, tmp_path):
    """A build back end whose hash is another is refused, and no environment is left."""
    add_sdist(quarry.index.folder)
    add(quarry.current.resolve(), quarry, "stone")
    captured(quarry)
    build_wheel(quarry.index.folder, "tiny-build", "1.0", files={"tiny_build.py": BACKEND.format(version="evil")})
    other = elsewhere(quarry, tmp_path)
    done = other("install", quarry.work / "pylock.captured.toml")
    assert (6, True) == (done.code, "hash" in done.err.lower()), done.err
    assert not other.current.exists()


@pytest.mark.parametrize(
    ("needs", "said"),
    [
        pytest.param("nobody-has-this", "nobody-has-this", id="not on the index"),
        pytest.param("tiny-build @ https://files.example/t-1-py3-none-any.whl", "from a URL", id="a URL"),
        pytest.param("not a requirement", "a build requirement that is none", id="no requirement"),
    ],
)
def test_a_build_that_cannot_be_pinned_is_named(quarry, needs, said):
    """What cannot be built from hashed files cannot be had; the rest can."""
    add_sdist(quarry.index.folder)
    add(quarry.current.resolve(), quarry, "stone")
    add_sdist(quarry.index.folder, needs)
    done = quarry("capture", "current", "--json")
    found = done.json["data"]["unavailable"]
    assert (5, [("stone", "not-built")]) == (done.code, [(it["name"], it["reason"]) for it in found])
    assert said in found[0]["what"]
    assert [] == list(quarry.work.iterdir())
    _, lock = captured(quarry, "--partial")
    assert (("stone",), ()) == (lock.table.captured.left_out, lock.table.captured.built)


@pytest.fixture
def repository(quarry, tmp_path):
    """Return a repository of `stone`, which git reaches under https://git.example/stone.git in every home here."""
    folder = write_source(tmp_path / "repository")
    git(folder, "init", "--quiet")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "one")
    for home in (quarry.home, tmp_path / "home-2"):
        home.mkdir(exist_ok=True)
        (home / ".gitconfig").write_text(f'[url "file://{folder}"]\n\tinsteadOf = https://git.example/stone.git\n')
    return folder


def head(folder):
    """Return a repository's commit."""
    words = ["git", "-C", str(folder), "rev-parse", "HEAD"]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()


def test_a_commit_comes_back_elsewhere(quarry, repository, tmp_path):
    """A package of a repository is locked by its commit, with its build pinned; later commits change nothing."""
    commit = head(repository)
    add(quarry.current.resolve(), quarry, "stone @ git+https://git.example/stone.git")
    (repository / "stone.py").write_text("HARD = False\n")
    git(repository, "commit", "--quiet", "-am", "two")
    _, lock = captured(quarry)
    (package,) = lock.table.captured.git
    assert ("stone", "https://git.example/stone.git", commit) == (package.name, package.url, package.commit)
    assert ["tiny-build"] == [it.name for it in lock.table.build]
    (tmp_path / "home-2" / ".gitconfig").rename(tmp_path / "kept")
    (tmp_path / "home-2").rmdir()
    other = elsewhere(quarry, tmp_path)
    (tmp_path / "kept").rename(other.home / ".gitconfig")
    built = other("install", quarry.work / "pylock.captured.toml")
    assert built.code == 0, built.err
    assert f"stone 1.0 comes from https://git.example/stone.git at {commit[:12]}" in built.err
    assert "HARD = True" in (site_of(other.current.resolve()) / "stone.py").read_text()
    same = other("diff", quarry.current.resolve(), other.current.resolve())
    assert (0, True) == (same.code, same.out.endswith("the same\n")), same.out
    assert 0 == other("diff", quarry.work / "pylock.captured.toml", other.current.resolve()).code


def test_a_commit_that_is_gone_is_named(quarry, repository):
    """A repository that has lost the commit cannot give it back."""
    add(quarry.current.resolve(), quarry, "stone @ git+https://git.example/stone.git")
    git(repository, "commit", "--quiet", "--amend", "-m", "another")
    git(repository, "reflog", "expire", "--expire=now", "--all")
    git(repository, "gc", "--quiet", "--prune=now")
    done = quarry("capture", "current", "--json")
    assert (5, [("stone", "not-built")]) == (
        done.code,
        [(it["name"], it["reason"]) for it in done.json["data"]["unavailable"]],
    )
    assert "cannot be fetched" in done.json["data"]["unavailable"][0]["what"]


def test_a_repository_of_this_machine(quarry, repository):
    """Installed from file://: its commit counts and not the files beside it; unless a remote has it, it is named."""
    commit = head(repository)
    add(quarry.current.resolve(), quarry, f"stone @ git+file://{repository}")
    done = quarry("capture", "current", "--json")
    assert (5, [("stone", "unpushed")]) == (
        done.code,
        [(it["name"], it["reason"]) for it in done.json["data"]["unavailable"]],
    )
    assert str(repository) not in json.dumps(done.json)
    git(repository, "remote", "add", "origin", "git@git.example:stone.git")
    git(repository, "update-ref", "refs/remotes/origin/main", "HEAD")
    (repository / "stone.py").write_text("HARD = False\n")
    git(repository, "commit", "--quiet", "-am", "two")
    (repository / "stone.py").write_text("HARD = None\n")
    _, lock = captured(quarry)
    (package,) = lock.table.captured.git
    assert ("ssh://git@git.example/stone.git", commit) == (package.url, package.commit)


def test_a_checkout_and_its_commit_are_the_same(quarry, repository):
    """An editable checkout is locked by commit; what is installed from there is the same, until somebody edits."""
    site = site_of(quarry.current.resolve())
    info = site / "stone-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: stone\nVersion: 1.0\n")
    (info / "RECORD").write_text("stone-1.0.dist-info/RECORD,,\n__editable__.stone-1.0.pth,,\n")
    (site / "__editable__.stone-1.0.pth").write_text(f"{repository}\n")
    (info / "direct_url.json").write_text(f'{{"url": "file://{repository}", "dir_info": {{"editable": true}}}}')
    git(repository, "remote", "add", "origin", "https://git.example/stone.git")
    git(repository, "update-ref", "refs/remotes/origin/main", "HEAD")
    captured(quarry)
    assert 0 == quarry("install", "pylock.captured.toml").code
    folders = sorted(it for it in (quarry.data / "environments").iterdir() if it.is_dir())
    assert 2 == len(folders)
    done = quarry("diff", *folders)
    assert (0, True) == (done.code, done.out.endswith("the same\n")), done.out
    (repository / "stone.py").write_text("HARD = False\n")
    done = quarry("diff", *folders, "--json")
    assert (1, ["stone: uncommitted changes"]) == (done.code, [it["name"] for it in done.json["data"]["differences"]])
