"""Environments of every kind, found by their folders; what each distribution says of itself."""

from __future__ import annotations

import json

import pytest

from verl_env.capture.condition import check_condition
from verl_env.capture.distributions import read_distributions
from verl_env.capture.layout import find_layout
from verl_env.errors import UsageError


def lay(site, name, version, *, direct_url=None, record=None, metadata=None):
    """Lay a distribution into a folder of packages."""
    info = site / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(metadata or f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "INSTALLER").write_text("pip\n")
    (info / "WHEEL").write_text("Wheel-Version: 1.0\nTag: py2-none-any\nTag: py3-none-any\n")
    (info / "RECORD").write_text(record if record is not None else f"{info.name}/RECORD,,\n")
    if direct_url:
        (info / "direct_url.json").write_text(json.dumps(direct_url))
    return info


@pytest.fixture
def venv(tmp_path):
    """Return a virtual environment over a base, both without any program."""
    base = tmp_path / "base"
    (base / "bin").mkdir(parents=True)
    (base / "include/python3.12").mkdir(parents=True)
    (base / "include/python3.12/patchlevel.h").write_text('#define PY_VERSION "3.12.7"\n')
    lay(base / "lib/python3.12/site-packages", "of-base", "1.0")
    folder = tmp_path / "venv"
    lay(folder / "lib/python3.12/site-packages", "of-venv", "1.0")
    (folder / "pyvenv.cfg").write_text(f"home = {base}/bin\ninclude-system-site-packages = false\n")
    return folder


def test_a_venv(venv):
    """The exact Python comes from the base; its packages are not seen."""
    layout = find_layout(str(venv))
    installed, faults = read_distributions(layout)
    assert ("venv", "3.12.7", ["of-venv"], ()) == (layout.kind, layout.python, [it.name for it in installed], faults)


def test_a_venv_that_sees_its_base(venv):
    """`include-system-site-packages` makes the base's packages count, after the venv's own."""
    text = (venv / "pyvenv.cfg").read_text()
    (venv / "pyvenv.cfg").write_text(text.replace("false", "true") + "version_info = 3.12.9.final.0\n")
    layout = find_layout(str(venv))
    assert ("3.12.9", ["of-base", "of-venv"]) == (layout.python, [it.name for it in read_distributions(layout)[0]])


def test_conda(tmp_path):
    """conda says its Python in conda-meta."""
    lay(tmp_path / "lib/python3.12/site-packages", "x", "1.0")
    (tmp_path / "conda-meta").mkdir()
    (tmp_path / "conda-meta/python-3.12.3-h996f2a0_0.json").write_text("{}")
    layout = find_layout(str(tmp_path))
    assert ("conda", "3.12.3") == (layout.kind, layout.python)


def test_a_python_stands_for_its_environment(venv):
    """A venv's python leads to the venv, whatever it links to."""
    (venv / "bin").mkdir()
    (venv.parent / "base/bin/python3.12").write_text("")
    (venv / "bin/python").symlink_to(venv.parent / "base/bin/python3.12")
    assert venv == find_layout(str(venv / "bin/python")).prefix
    assert venv.parent / "base" == find_layout(str(venv.parent / "base/bin/python3.12")).prefix


def test_folders_of_pth_files(venv, tmp_path):
    """A path in a .pth file is looked at; a line of code is named and not run."""
    lay(tmp_path / "more", "more", "1.0")
    site = venv / "lib/python3.12/site-packages"
    (site / "more.pth").write_text(f"{tmp_path}/more\n# a comment\n")
    (site / "code.pth").write_text("import os; os.abort()\n")
    layout = find_layout(str(venv))
    assert (["more", "of-venv"], ("code.pth",)) == (
        [it.name for it in read_distributions(layout)[0]], layout.startup
    )  # fmt: skip


@pytest.mark.parametrize("place", ["nothing-here", "empty"])
def test_no_environment(tmp_path, place):
    """A folder without packages is refused."""
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError):
        find_layout(str(tmp_path / place))


def test_where_distributions_came_from(venv):
    """direct_url.json is read, and what is secret in it is not kept."""
    site = venv / "lib/python3.12/site-packages"
    commit = "0" * 40
    vcs = {"vcs": "git", "commit_id": commit, "requested_revision": "main"}
    lay(site, "a", "1", direct_url={"url": "https://me:hunter2@git.example/a.git", "vcs_info": vcs})
    lay(site, "b", "1", direct_url={"url": "https://files.example/b-1.whl?token=hunter2", "archive_info": {}})
    lay(site, "c", "1", direct_url={"url": "file:///home/me/c", "dir_info": {"editable": True}})
    lay(site, "d", "1", direct_url={"url": "file:///home/me/d", "dir_info": {}})
    found = {it.name: it for it in read_distributions(find_layout(str(venv)))[0]}
    assert ["vcs", "archive", "editable", "directory"] == [found[it].origin for it in "abcd"]
    assert ("https://git.example/a.git", commit) == (found["a"].vcs.url, found["a"].vcs.commit)
    assert "https://files.example/b-1.whl" == found["b"].url
    assert not any(word in repr([it.listed for it in found.values()]) for word in ("hunter2", "/home/me"))


def test_broken_metadata(venv):
    """What cannot be read is said, and the rest is read."""
    site = venv / "lib/python3.12/site-packages"
    (lay(site, "no-record", "1") / "RECORD").unlink()
    lay(site, "no-name", "1", metadata="Metadata-Version: 2.1\nVersion: 1\n")
    lay(site, "odd-version", "1", metadata="Metadata-Version: 2.1\nName: odd-version\nVersion: a b\n")
    lay(site, "two", "1")
    lay(site, "two", "2")
    (lay(site, "bad-url", "1") / "direct_url.json").write_text("{")
    lay(site, "bad-record", "1", record="one,two\n")
    installed, faults = read_distributions(find_layout(str(venv)))
    assert ["bad-record", "bad-url", "no-record", "of-venv", "two"] == [it.name for it in installed]
    said = ("no-name-1.dist-info states no", "two has two .dist-info", "no-record: its RECORD is missing",
            "bad-url: its direct_url.json", "bad-record: its RECORD has lines")  # fmt: skip
    assert [] == [words for words in said if not any(words in it for it in faults)]


def test_one_over_another(venv):
    """A file that two RECORDs name belongs to the one whose hash it has."""
    import base64
    import hashlib

    site = venv / "lib/python3.12/site-packages"
    (site / "shared.py").write_text("second\n")
    for name in ("first", "second"):
        digest = base64.urlsafe_b64encode(hashlib.sha256(f"{name}\n".encode()).digest()).rstrip(b"=").decode()
        lay(site, name, "1", record=f"shared.py,sha256={digest},7\n")
    layout = find_layout(str(venv))
    (state,) = check_condition(layout, read_distributions(layout)[0]).files
    assert ("first", "shared.py", "overwritten", "second") == (state.package, state.path, state.state, state.by)
