"""The manifest's text, the order of walks, what caches belong to, and names of rebuilt environments."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

import pytest

from verl_env.environment.manifest import Entry, ManifestError, read_folders, read_packages, render_manifest
from verl_env.environment.standing import generation
from verl_env.environment.survey import DamagedError, read_records
from verl_env.environment.tree import order_of, source_of, walk_tree


def written(folder, folders, packages=("torch 2.13.0",)):
    """Write a manifest and return its path."""
    path = folder / "manifest.txt"
    path.write_text("".join(render_manifest(packages, folders)), encoding="utf-8", errors="surrogateescape", newline="")
    return path


@pytest.mark.parametrize(
    "name", ["plain.py", "with space", "tab\there", "line\nbreak", "back\\slash", "caf\udce9", "é"]
)
def test_any_name_survives(tmp_path, name):
    """A file's and a link's names and targets come back as they were, bytes that are no UTF-8 included."""
    entries = [
        Entry(name=name, size=3, mtime=5, executable=True, package=0, sha256="ab" * 32),
        Entry(name=f"{name}.link", target=name),
    ]
    path = written(tmp_path, [("", entries), (f"lib/{name}", entries)])
    assert [("", entries), (f"lib/{name}", entries)] == list(read_folders(path))
    assert ("torch 2.13.0",) == read_packages(path)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param("no json\n", id="no head"),
        pytest.param('{"schema": 99, "packages": []}\n', id="another schema"),
        pytest.param('{"schema": 1, "packages": []}\nD\tlib\nF\t1\n', id="cut short"),
        pytest.param('{"schema": 1, "packages": []}\nD\tlib\nX\t1\t2\t3\n', id="unknown kind"),
    ],
)
def test_damage_is_an_error(tmp_path, text):
    """What is no manifest is refused as such."""
    path = tmp_path / "manifest.txt"
    path.write_text(text)
    with pytest.raises(ManifestError):
        list(read_folders(path))


def test_walks_meet_in_step(tmp_path):
    """Folders come sorted by component, not by text: `a` and what is below it before `a.b` and `a-b`."""
    for name in ("a/x/1", "a/2", "a-b/3", "a.b/4", "b/c/5", "6"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    folders = [folder for folder, _ in walk_tree(str(tmp_path))]
    assert ["", "a", "a/x", "a-b", "a.b", "b/c"] == folders
    assert sorted(folders, key=order_of) == folders


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("verl.cpython-312.pyc", "verl.py"),
        ("verl.cpython-312.opt-1.pyc", "verl.py"),
        ("a.b.cpython-310.pyc", "a.b.py"),
        ("kernels.fast-12.py312.1.nbc", "kernels.py"),
        ("kernels.fast-12.py312.nbi", "kernels.py"),
        ("verl.pyc", None),
        ("verl.so", None),
        ("verl.py", None),
    ],
)
def test_caches_have_sources(name, source):
    """A cache file names the source that it was made from; anything else has none."""
    assert source == source_of(name)


@pytest.mark.parametrize(("name", "number"), [("row-0123", 1), ("row-0123.2", 2), ("row-0123.10", 10), ("row.x", 1)])
def test_generations(name, number):
    """A repair's number is behind the dot."""
    assert number == generation(Path(name))


def test_a_record_that_leads_outside_is_refused(tmp_path):
    """Nobody's RECORD makes us look at files that are not the environment's."""
    info = tmp_path / "lib/python3.12/site-packages/evil-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "RECORD").write_text("../../../../etc/passwd,sha256=AAAA,1\n")
    with pytest.raises(DamagedError) as caught:
        read_records(tmp_path)
    assert ["evil 1.0"] == [it.package for it in caught.value.damages]


def test_a_path_of_two_wheels_is_taken_as_it_is(tmp_path):
    """Where two RECORDs give one path different contents, neither is held against the disk; the rest still is."""
    site = tmp_path / "lib" / "python3.12" / "site-packages"
    for name in ("one", "two"):
        info = site / f"{name}-1.0.dist-info"
        info.mkdir(parents=True)
        digest = base64.urlsafe_b64encode(hashlib.sha256(name.encode()).digest()).decode().rstrip("=")
        (info / "RECORD").write_text(f"build_backend.py,sha256={digest},3\n{name}.py,sha256={digest},3\n")

    files = read_records(tmp_path).files

    place = "lib/python3.12/site-packages"
    assert (None, b"") == files[f"{place}/build_backend.py"][1:]
    assert [hashlib.sha256(name).digest() for name in (b"one", b"two")] == [
        files[f"{place}/{name}.py"][2] for name in ("one", "two")
    ]
