"""Where pinned files are found: each index by itself, its hash held against the pins, and who served what is said."""

from __future__ import annotations

import os

import pytest

from tiny import build_wheel, pin_of
from verl_env.lock.read import read_lock

LOCK = "pylock.tiny.toml"


@pytest.fixture
def split(tiny, tmp_path, serve, wheels):
    """Return verl-env whose default index lacks tiny-sub, and an extra index that has it beside a wrong verl."""
    near, far = tmp_path / "near", tmp_path / "far"
    for folder, names in ((near, ("torch", "verl")), (far, ("tiny-sub", "torch"))):
        folder.mkdir()
        for name in names:
            os.link(wheels[name], folder / wheels[name].name)
    build_wheel(far, "verl", "99.0", files={"verl/__init__.py": "__version__ = 'evil'\n"})
    tiny.index = serve(near)
    tiny.environ = {"UV_INDEX": serve(far).url}
    return tiny


def test_a_wrong_file_does_not_hide_the_right_one(split, wheels):
    """The extra index has another verl 99.0: the pinned one is taken from where it is, and each place is named."""
    done = split("lock", "--cpu", "--json")
    assert 0 == done.code, done.err
    locked = read_lock(split.work / LOCK)
    assert {pin_of(wheels[name]) for name in ("torch", "verl", "tiny-sub")} == set(locked.pins)
    served = {it["place"]: it["files"] for it in done.json["data"]["served"]}
    assert {split.index.url: 2, split.environ["UV_INDEX"]: 1} == served
    assert locked.urls[wheels["verl"].name].startswith(f"http://{split.index.host}/")


def test_a_wrong_file_everywhere(split, wheels):
    """When no index has the pinned file, every index and what it has instead is named; nothing is written."""
    (split.index.folder / wheels["verl"].name).unlink()
    done = split("lock", "--cpu")
    assert (5, False) == (done.code, (split.work / LOCK).exists())
    assert "another file here" in done.err
    assert pin_of(wheels["verl"]).sha256 in done.err
    for url in (split.index.url, split.environ["UV_INDEX"]):
        assert url in done.err


def test_logins_reach_no_lock(tiny, serve, wheels):
    """An index with a login serves the lock; neither name nor password is in it, nor in what is said."""
    tiny.index = serve(wheels["torch"].parent, login="someone:s3cret")
    done = tiny("lock", "--cpu", "--json")
    assert 0 == done.code, done.err
    said = (tiny.work / LOCK).read_text() + done.out + done.err
    assert ("s3cret" in said, "someone" in said) == (False, False)
    assert "***@" in done.json["data"]["served"][0]["place"]


def test_a_folder_of_wheels(tiny, wheels, tmp_path):
    """Wheels of a folder are paths relative to the lockfile, as PEP 751 has them: no URL of this machine."""
    tiny.index.stop()
    tiny.environ = {"UV_FIND_LINKS": str(wheels["torch"].parent)}
    target = tmp_path / "elsewhere/pylock.toml"
    done = tiny("lock", "--cpu", "-o", target)
    assert 0 == done.code, done.err
    urls = read_lock(target).urls
    assert {wheels[name].name for name in ("torch", "verl", "tiny-sub")} == set(urls)
    assert [] == [it for it in urls.values() if not (target.parent / it).is_file()]
    assert "file:" not in target.read_text()
    assert 0 == tiny("lock", "--check", target).code
    assert 0 == tiny("install", target).code, done.err


def test_local_versions_are_encoded_in_urls(tiny, tmp_path, serve, wheels):
    """A `+` in a file's name may be percent-encoded in its URL; the lock names the file, and others install it."""
    folder = tmp_path / "local"
    torch = build_wheel(folder, "torch", "2.13.0+cpu")
    os.link(wheels["verl"], folder / wheels["verl"].name)
    os.link(wheels["tiny-sub"], folder / wheels["tiny-sub"].name)
    tiny.site.add_row("tiny", [torch, wheels["verl"], wheels["tiny-sub"]], sources={"torch": "pytorch-cpu"})
    tiny.index = serve(folder)
    done = tiny("lock", "--cpu", "--json")
    assert 0 == done.code, done.err
    locked = read_lock(tiny.work / LOCK)
    assert {"torch": "pytorch-cpu"} == locked.table.sources
    assert 0 == tiny("lock", "--check").code
    assert 0 == tiny("install", tiny.work / LOCK).code


def test_a_mirror_for_a_source(tiny, tmp_path, serve, wheels):
    """An index that the user names for a source comes first, and is said."""
    own, rest = tmp_path / "own", tmp_path / "rest"
    torch = build_wheel(own, "torch", "2.13.0+cpu")
    rest.mkdir()
    for name in ("verl", "tiny-sub"):
        os.link(wheels[name], rest / wheels[name].name)
    tiny.site.add_row("tiny", [torch, wheels["verl"], wheels["tiny-sub"]], sources={"torch": "pytorch-cpu"})
    tiny.index, mirror = serve(rest), serve(own)
    done = tiny("lock", "--cpu", "--json", VERL_ENV_INDEX_PYTORCH_CPU=mirror.url)
    assert 0 == done.code, done.err
    assert {"pytorch-cpu": mirror.url, "default": tiny.index.url} == {
        it["source"]: it["place"] for it in done.json["data"]["served"]
    }


def test_install_where_an_index_has_a_wrong_file(split):
    """The installation takes each file from the index that has the pinned one, too."""
    done = split("install", "--cpu", "--json")
    assert 0 == done.code, done.err
    said = split("run", "--", "python", "-c", "import verl; print(verl.__version__)")
    assert "99.0" == said.out.strip()
