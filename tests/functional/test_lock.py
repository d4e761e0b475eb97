"""`verl-env lock`: the same bytes from the same index, the same digest from any, and installable by others."""

from __future__ import annotations

import os
import subprocess

import pytest
from packaging.pylock import Pylock

from tiny import build_wheel, pin_of, snapshot
from verl_env import toml, uv


def locked(tool, folder, **more):
    """Write the lock in a folder and return its bytes."""
    folder.mkdir(exist_ok=True)
    done = tool("lock", "--cpu", cwd=folder, **more)
    assert 0 == done.code, done.err
    return (folder / "pylock.tiny.toml").read_bytes()


def test_same_bytes_in_two_folders(tiny, tmp_path):
    """Neither the folder nor a second run changes a byte."""
    one = locked(tiny, tmp_path / "one")
    assert one == locked(tiny, tmp_path / "two") == locked(tiny, tmp_path / "one")
    assert str(tmp_path) not in one.decode()


def test_a_second_index_gives_the_same_digest(tiny, tmp_path, serve, wheels):
    """Other URLs, the same packages and table: other bytes, the same digest."""
    one = toml.loads(locked(tiny, tmp_path / "one").decode())
    tiny.index = serve(wheels["torch"].parent, html=True)
    two = toml.loads(locked(tiny, tmp_path / "two").decode())
    assert one["tool"] == two["tool"]
    urls = [{package["wheels"][0]["url"] for package in document["packages"]} for document in (one, two)]
    assert set() == urls[0] & urls[1]


def test_others_install_it(tiny, tmp_path):
    """Plain `uv pip sync` of the file installs exactly its packages, and packaging validates it."""
    locked(tiny, tmp_path)
    path = tmp_path / "pylock.tiny.toml"
    assert ["tiny-sub", "torch", "verl"] == [it.name for it in Pylock.from_dict(toml.loads(path.read_text())).packages]
    program = uv.executable()
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(tiny.home), "UV_CACHE_DIR": str(tmp_path / "cache")}
    venv = tmp_path / "venv"
    for words in (
        ["venv", "--quiet", str(venv), "--python", os.path.realpath("/proc/self/exe")],
        ["pip", "sync", "--quiet", "--python", str(venv / "bin/python"), str(path)],
    ):
        subprocess.run([program, *words], env=environ, check=True, cwd=tmp_path)
    done = subprocess.run(
        [program, "pip", "freeze", "--python", venv], env=environ, check=True, capture_output=True, text=True
    )
    assert ["tiny-sub==1.2", "torch==2.13.0", "verl==99.0"] == done.stdout.split()


def test_install_of_a_lock(tiny, tmp_path):
    """`install LOCK` builds the environment of that lock, the one that `install` itself would have built."""
    locked(tiny, tmp_path)
    done = tiny("install", tmp_path / "pylock.tiny.toml", "--json")
    assert 0 == done.code, done.err
    again = tiny("install", "--cpu", "--json").json["data"]
    assert (False, done.json["data"]["folder"]) == (again["changed"], again["folder"])


def test_a_lock_needs_no_matrix(tiny, tmp_path):
    """A teammate without the site's rows installs the file as it is."""
    locked(tiny, tmp_path)
    tiny.site = None
    done = tiny("install", tmp_path / "pylock.tiny.toml", "--json")
    assert (0, "tiny") == (done.code, done.json["data"]["receipt"]["row"]), done.err


def test_lock_of_a_described_node(tiny, tmp_path, wheels):
    """A lock for another machine is written here: its table has CUDA, driver floor and architecture."""
    torch = build_wheel(tmp_path / "arm", "torch", "2.11.0", tag="py3-none-manylinux_2_28_aarch64")
    row = {"verl": "100.0", "torch": "2.11.0"}
    tiny.site.add_row(
        "tiny-arm",
        [torch, wheels["verl"], wheels["tiny-sub"]],
        set=row,
        cuda="13.0",
        arch=("aarch64",),
        python=("3.12",),
    )
    os.link(torch, wheels["torch"].parent / torch.name)
    try:
        words = ["--driver", "580.95.05", "--arch", "aarch64"]
        done = tiny("lock", *words, "--json")
    finally:
        (wheels["torch"].parent / torch.name).unlink()
    assert 0 == done.code, done.err
    data = done.json["data"]
    assert ("tiny-arm", "13.0", "580", "2.28", "aarch64", "3.12") == (
        data["row"], data["cuda"], data["driver_min"], data["glibc_min"], data["arch"], data["python"]
    )  # fmt: skip
    refused = tiny("install", tiny.work / "pylock.tiny-arm.toml", "--driver", "580.95.05")
    assert (10, True) == (refused.code, "the lock is for aarch64, and this machine is" in refused.err)


def test_dry_run_writes_nothing(tiny):
    """--dry-run says what would be written; no file, no request."""
    before = snapshot(tiny.work), snapshot(tiny.home)
    done = tiny("lock", "--cpu", "--dry-run")
    assert (0, True) == (done.code, done.out.startswith("would write pylock.tiny.toml"))
    assert (before, []) == ((snapshot(tiny.work), snapshot(tiny.home)), tiny.index.asked)


@pytest.mark.parametrize(
    ("name", "code"),
    [
        pytest.param("pylock.mine.toml", 0, id="PEP 751's name"),
        pytest.param("pylock.toml", 0, id="the plain name"),
        pytest.param("pylock.verl-0.9.toml", 2, id="a dot in the name: other installers refuse it"),
        pytest.param("requirements.txt", 2, id="another name"),
        pytest.param("deep/er/pylock.toml", 0, id="a folder that is not there yet"),
    ],
)
def test_names(tiny, name, code):
    """Only names that every PEP 751 installer takes; the refusal says how to name it."""
    done = tiny("lock", "--cpu", "-o", name)
    assert (code, code == 0) == (done.code, (tiny.work / name).is_file()), done.err
    assert (code == 2) == ("pylock.<name>.toml" in done.err)


def test_an_old_lock_stays_whole_when_writing_fails(tiny):
    """When a file cannot be located, the lock that was there stays as it was."""
    target = tiny.work / "pylock.tiny.toml"
    target.write_text("old")
    tiny.index.stop()
    done = tiny("lock", "--cpu")
    assert (5, "old", ["pylock.tiny.toml"]) == (done.code, target.read_text(), os.listdir(tiny.work)), done.err


def test_an_index_with_another_file_is_refused(tiny, wheels):
    """Uv would write what the index says; verl-env holds it against the pins."""
    tiny.index.hashes[wheels["verl"].name] = "f" * 64
    done = tiny("lock", "--cpu")
    assert (5, []) == (done.code, os.listdir(tiny.work))
    assert "f" * 64 in done.err
    assert pin_of(wheels["verl"]).sha256 in done.err
