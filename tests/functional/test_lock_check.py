"""`verl-env lock --check`: exit 0 when the file is what would be written, 1 with the difference, and no network."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys

import pytest

from teammate import add, site_of
from teammate import edit as edit_file
from tiny import MINOR, build_wheel, pin_of

LOCK = "pylock.tiny.toml"


@pytest.fixture
def locked(tiny):
    """Return verl-env beside a committed lock, and an index that is out of reach."""
    assert 0 == tiny("lock", "--cpu").code
    tiny.index.stop()
    return tiny


@pytest.fixture
def captured_lock(tiny):
    """Return the name of a captured lock of a freeze, in the folder that is worked in."""
    freeze = tiny.home / "freeze.txt"
    freeze.write_text("torch==2.13.0\ntiny-sub==1.2\n")
    assert 0 == tiny("capture", "--from", freeze, "--python", MINOR, "-o", "pylock.captured.toml").code
    return "pylock.captured.toml"


def edit(tool, old, new, name=LOCK):
    """Change the committed lock."""
    path = tool.work / name
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_same(locked):
    """With nothing named, the lock of this folder is checked; no index is asked, no GPU is needed."""
    done = locked("lock", "--check", "--json")
    assert (0, True, []) == (
        done.code,
        done.json["data"]["locks"][0]["same"],
        done.json["data"]["locks"][0]["differences"],
    )
    assert 0 == locked("lock", "--check", LOCK, UV_OFFLINE="1").code


def test_there_is_no_network(captured_lock, locked):
    """In a namespace without any interface, not even loopback, a row's lock and a captured one are checked."""
    tried = subprocess.run(["unshare", "-rn", "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"no network namespace can be made here: {tried.stderr.strip()}")
    words = ["unshare", "-rn", sys.executable, "-m", "verl_env", "lock", "--check", LOCK, captured_lock, "--json"]
    done = subprocess.run(words, env=locked.variables(), cwd=locked.work, capture_output=True, text=True, check=False)
    assert (0, [True, True]) == (done.returncode, [it["same"] for it in json.loads(done.stdout)["data"]["locks"]])


def test_another_index_is_no_difference(locked, serve, wheels):
    """URLs are the writer's; a lock that was written with another index is the same lock."""
    other = serve(wheels["torch"].parent)
    text = (locked.work / LOCK).read_text()
    (locked.work / LOCK).write_text(text.replace(text.split("http://")[1].split("/")[0], other.host))
    assert 0 == locked("lock", "--check").code


@pytest.mark.parametrize(
    ("old", "new", "kind", "what"),
    [
        pytest.param('version = "99.0"', 'version = "99"', "version", "verl", id="version"),
        pytest.param("TINY_NOTE", "LD_PRELOAD", "table", "exports.LD_PRELOAD", id="an export"),
        pytest.param("http://127", "http://me:secret@127", "url", "tiny-sub", id="a login"),
        pytest.param(
            'name = "verl"\n', 'name = "verl"\nmarker = "python_version < \'3\'"\n', "text", "text", id="a marker"
        ),
    ],
)
def test_differs(locked, old, new, kind, what):
    """An edit is exit code 1 and status `differs`, with the difference first of its kind, and no secret repeated."""
    edit(locked, old, new)
    done = locked("lock", "--check", "--json")
    found = done.json["data"]["locks"][0]["differences"][0]
    assert (1, kind, what) == (done.code, found["kind"], found["what"]), done.out
    assert "differs" == done.json["status"]
    assert "secret" not in done.out + done.err


def test_a_row_that_changed(locked, wheels, tmp_path):
    """When the row's pins change, the lock is out of date: what was added, removed and changed is named."""
    verl = build_wheel(tmp_path / "new", "verl", "99.1")
    more = build_wheel(tmp_path / "new", "more", "1")
    locked.site.add_row("tiny", [wheels["torch"], verl, more], exports={"TINY_NOTE": "it's set"})
    done = locked("lock", "--check")
    assert 1 == done.code
    for said in (
        "- more 1 is missing from the file",
        "+ tiny-sub 1.2 is in the file, and nothing asks for it",
        "~ verl is 99.0 in the file, and should be 99.1",
        "~ set.verl: `99.0` in the file, and should be `99.1`",
    ):
        assert said in done.out
    assert "write it again: verl-env lock --row tiny" in done.out


def test_changed_hash(locked, wheels):
    """The same version with another hash is a hash that changed."""
    file = locked.site.folder / "pins" / next(it.name for it in (locked.site.folder / "pins").iterdir())
    locked.site.add_row(
        "tiny",
        [wheels["torch"], wheels["verl"], build_wheel(locked.work / "x", "tiny-sub", "1.2", files={"a.py": ""})],
        exports={"TINY_NOTE": "it's set"},
    )
    done = locked("lock", "--check")
    assert (1, True) == (
        done.code,
        f"tiny-sub 1.2 has sha256 {pin_of(wheels['tiny-sub']).sha256}, and should have" in done.out,
    ), file


def test_a_row_that_is_gone(locked):
    """A row that the matrix no longer has is a difference, not an error."""
    locked.site = None
    done = locked("lock", "--check")
    assert (1, True) == (done.code, "the matrix has no such pins" in done.out)


def test_a_newer_row_is_a_note(locked, wheels, tmp_path):
    """A newer row that runs wherever the lock does is said, and is no failure."""
    locked.site.add_row(
        "tiny-new", [wheels["torch"], build_wheel(tmp_path / "new", "verl", "99.5"), wheels["tiny-sub"]]
    )
    done = locked("lock", "--check")
    assert (0, True) == (done.code, f"{LOCK}: row tiny-new is newer, and runs wherever this lock does" in done.err)


@pytest.mark.parametrize(
    ("option", "value", "code"),
    [("--row", "tiny", 0), ("--verl", "98.0", 1), ("--engine", "vllm", 1), ("--python", "3.9", 1)],
)
def test_what_is_asked_of_the_row(locked, option, value, code):
    """A row, verl, engine or Python that is asked for beside --check is held against the lock."""
    assert code == locked("lock", "--check", option, value).code


def test_on_github(locked):
    """Where GitHub runs it, each difference is an annotation at its line; elsewhere there are none."""
    edit(locked, 'version = "99.0"', 'version = "99"')
    line = (locked.work / LOCK).read_text().splitlines().index('name = "verl"') + 1
    done = locked("lock", "--check", GITHUB_ACTIONS="true")
    assert (
        f"::error file={LOCK},line={line},title=lockfile differs::verl is 99 in the file, and should be 99.0"
        in done.err.splitlines()
    )
    assert "::error" not in locked("lock", "--check").err


def test_an_unreadable_lock_on_github(locked):
    """A lock that cannot be read is an annotation too, and the error it always is."""
    (locked.work / LOCK).write_text("not = a lock [")
    done = locked("lock", "--check", GITHUB_ACTIONS="true")
    assert (10, True) == (done.code, done.err.startswith(f"::error file={LOCK},line=1"))


def test_several(locked):
    """Several files are checked in one call; one that differs makes it exit 1."""
    (locked.work / "pylock.toml").write_text((locked.work / LOCK).read_text().replace("99.0", "99.1"))
    done = locked("lock", "--check", LOCK, "pylock.toml", "--json")
    assert (1, [True, False]) == (done.code, [it["same"] for it in done.json["data"]["locks"]])
    (locked.work / "pylock.toml").rename(locked.work / "pylock.b.toml")
    done = locked("lock", "--check")
    assert (2, True) == (done.code, "pylock.b.toml pylock.tiny.toml" in done.err)


def test_no_lock(tiny):
    """Without a lock there is nothing to check: an error with a hint."""
    done = tiny("lock", "--check")
    assert (10, True) == (done.code, "no lockfile is here" in done.err)


def test_the_command_that_is_named_mends_it(tiny):
    """The command that --check names writes the file that --check accepts."""
    assert 0 == tiny("lock", "--cpu").code
    before = (tiny.work / LOCK).read_text()
    edit(tiny, 'version = "99.0"', 'version = "99"')
    command = tiny("lock", "--check", "--json").json["data"]["locks"][0]["command"]
    assert 0 == tiny(*shlex.split(command)[1:]).code
    assert (before, 0) == ((tiny.work / LOCK).read_text(), tiny("lock", "--check").code)


def test_json_is_one_object(locked):
    """With --json, stdout is one object also where GitHub's annotations are printed."""
    edit(locked, 'version = "99.0"', 'version = "99"')
    done = locked("lock", "--check", "--json", GITHUB_ACTIONS="true")
    assert "lock" == json.loads(done.out)["command"]


@pytest.fixture
def captured(tiny, wheels):
    """Return verl-env beside a captured lock with a patch, and an index that is out of reach."""
    build_wheel(wheels["torch"].parent, "extra-thing", "1.0")
    assert 0 == tiny("install", "--cpu").code
    folder = tiny.current.resolve()
    edit_file(site_of(folder) / "verl" / "__init__.py", "PATCHED = 1\n")
    add(folder, tiny, "extra-thing")
    done = tiny("capture", folder, "--with-patches", "-o", "pylock.captured.toml")
    assert 0 == done.code, done.err
    tiny.index.stop()
    return tiny


CAPTURED = "pylock.captured.toml"


def test_a_captured_lock(captured):
    """A captured lock follows from its own packages: it is what would be written, with no index."""
    done = captured("lock", "--check", "--json", UV_OFFLINE="1")
    assert (0, ["captured", True, []]) == (
        done.code,
        [done.json["data"]["locks"][0][it] for it in ("row", "same", "differences")],
    ), done.out


@pytest.mark.parametrize(
    ("old", "new", "kind", "what"),
    [
        pytest.param("TINY_NOTE", "LD_PRELOAD", "table", "exports.LD_PRELOAD", id="an export"),
        pytest.param('version = "99.0"', 'version = "99"', "table", "set.verl", id="version"),
        pytest.param('kind = "environment"', 'kind = "pip freeze"', "table", "title", id="what it was"),
        pytest.param('package = "verl"', 'package = "torch"', "digest", "digest", id="the patch's package"),
    ],
)
def test_a_captured_lock_that_was_edited(captured, old, new, kind, what):
    """An edit is a difference, with its key."""
    edit(captured, old, new, CAPTURED)
    done = captured("lock", "--check", "--json")
    found = {(it["kind"], it["what"]) for it in done.json["data"]["locks"][0]["differences"]}
    assert (1, True) == (done.code, (kind, what) in found), done.out


@pytest.mark.parametrize("how", ["another", "gone"])
def test_the_patch_of_a_captured_lock(captured, how):
    """The patch beside the lock is the one that it was captured with, or that is the difference."""
    patch = captured.work / "pylock.captured.patch"
    patch.unlink()
    if how == "another":
        patch.write_text("--- a/verl/__init__.py\n+++ b/verl/__init__.py\n")
    found = captured("lock", "--check", "--json")
    assert (1, ["patch"]) == (found.code, [it["kind"] for it in found.json["data"]["locks"][0]["differences"]])


def test_a_captured_lock_whose_nearest_row_is_gone(captured):
    """What its nearest row knew of the set is taken from the lock, and that is said."""
    captured.site = None
    done = captured("lock", "--check")
    assert (0, True) == (done.code, "the matrix has no row tiny" in done.err), done.out


def test_a_captured_lock_that_is_incoherent(captured):
    """A rule that an edit breaks is named."""
    path = captured.work / CAPTURED
    path.write_text(path.read_text().replace("extra-thing", "torchaudio").replace("extra_thing", "torchaudio"))
    done = captured("lock", "--check", "--json")
    rules = [it["what"] for it in done.json["data"]["locks"][0]["differences"] if it["kind"] == "rule"]
    assert (1, ["torch-family"]) == (done.code, rules)


def test_a_rows_own_lock_with_a_patch(tiny):
    """Only a file was edited: it is the row's lock with a patch, and follows the row's pins."""
    assert 0 == tiny("install", "--cpu").code
    edit_file(site_of(tiny.current.resolve()) / "verl" / "__init__.py", "PATCHED = 1\n")
    assert 0 == tiny("capture", "current", "--with-patches", "-o", "pylock.toml").code
    assert 0 == tiny("lock", "--check").code
    (tiny.work / "pylock.patch").unlink()
    done = tiny("lock", "--check")
    assert (1, True) == (done.code, "~ the lock's patch `pylock.patch` cannot be read" in done.out), done.out
    done = tiny("lock", "--check", "--with", "peft")
    assert 1 == done.code
