"""Where uv comes from, in order: its own folder, pip, a configured index, a uv that is here, the release archive."""

import importlib.util
import os
import shutil
import subprocess
import sys

import pytest

HAS_PIP = any(importlib.util.find_spec(it) for it in ("pip", "ensurepip"))


@pytest.fixture
def bare(release, uv_files):
    """Return a node with no uv, whose install.sh knows the hashes of the files that stand in for uv's own."""
    shutil.rmtree(release.home / ".local")
    release.repin(**uv_files.pins)
    release.env["VERL_ENV_UV_BASE_URL"] = "http://127.0.0.1:9/nowhere"
    return release


@pytest.fixture
def with_pip(bare):
    """Return such a node whose Python has pip, or at least the wheel of it that ensurepip keeps."""
    if not HAS_PIP:
        pytest.skip("this Python has neither pip nor ensurepip")
    bare.command("python3", f'exec {sys.executable} "$@"')
    return bare


def index(served, wheel):
    """Serve a simple index that lists the wheel; return its address."""
    folder = served.folder / "simple/uv"
    folder.mkdir(parents=True)
    shutil.copy(wheel, folder)
    (folder / "index.html").write_text(
        f'<!DOCTYPE html><html><body><a href="{wheel.name}">{wheel.name}</a></body></html>'
    )
    return f"{served.url}/simple"


def brought(node, done, version, how):
    """Check that it worked, and that uv came this way."""
    assert (done.returncode, done.stdout) == (0, "release install\n"), done.stderr
    assert f"uv {version} (from {how}, sha256 checked)" in done.stderr
    kept = node.self / "uv" / version
    assert sorted(it.name for it in kept.iterdir()) == ["sha256", "uv"]
    assert subprocess.run([kept / "uv", "--version"], capture_output=True, check=False).returncode == 0


def nothing_left(node, done, said):
    """Check that it was refused, why, and that no trace is left in the home."""
    assert (done.returncode, done.stdout) == (6, ""), done.stderr
    assert said in done.stderr
    assert list(node.home.iterdir()) == []


def test_with_pip(with_pip, served, uv_files):
    """With its own index setting, pip fetches the pinned wheel."""
    done = with_pip.run(PIP_INDEX_URL=index(served, uv_files.wheel))
    brought(with_pip, done, with_pip.pin("UV_VERSION"), "pip")


def test_with_pip_configured_by_a_file(with_pip, served, uv_files, tmp_path):
    """A configuration file of pip counts as well, a constraint in it does no harm."""
    (tmp_path / "constraints.txt").write_text("torch<3\n")
    (tmp_path / "pip.conf").write_text(
        f"[global]\nindex-url = {index(served, uv_files.wheel)}\nconstraint = {tmp_path}/constraints.txt\n"
    )
    done = with_pip.run(PIP_CONFIG_FILE=str(tmp_path / "pip.conf"))
    brought(with_pip, done, with_pip.pin("UV_VERSION"), "pip")


def test_tampered_wheel_with_pip(with_pip, served, uv_files):
    """A mirror that serves something else is refused; no other way is tried."""
    url = index(served, uv_files.wheel)
    file = served.folder / "simple/uv" / uv_files.wheel.name
    file.write_bytes(file.read_bytes() + b"x")
    nothing_left(with_pip, with_pip.run(PIP_INDEX_URL=url), "is not the file whose sha256 this script knows")


def test_with_a_configured_index(bare, served, uv_files):
    """Without pip, the standard library reads the index; the credentials reach the server and no screen."""
    url = index(served, uv_files.wheel).replace("http://", "http://user:s3cret@")
    done = bare.run(UV_DEFAULT_INDEX=url)
    brought(bare, done, bare.pin("UV_VERSION"), "the configured index")
    assert "s3cret" not in done.stderr
    assert served.credentials[served.asked.index(f"/simple/uv/{uv_files.wheel.name}")] == "Basic dXNlcjpzM2NyZXQ="


def test_with_find_links(bare, uv_files):
    """A folder of wheels is enough, and no network."""
    done = bare.run(UV_FIND_LINKS=str(uv_files.wheel.parent), UV_NO_INDEX="1")
    brought(bare, done, bare.pin("UV_VERSION"), "the configured index")


def test_tampered_wheel_with_a_configured_index(bare, served, uv_files):
    """The same refusal."""
    url = index(served, uv_files.wheel)
    file = served.folder / "simple/uv" / uv_files.wheel.name
    file.write_bytes(file.read_bytes() + b"x")
    nothing_left(bare, bare.run(PIP_INDEX_URL=url), "is not the file whose sha256 this script knows")


@pytest.mark.parametrize("versioned", [True, False])
def test_with_the_release_archive(bare, served, uv_files, versioned):
    """With nothing but a downloader: the archive, from a folder or from the folder of its version."""
    version = bare.pin("UV_ARCHIVE_VERSION")
    place = served.folder / version if versioned else served.folder
    place.mkdir(exist_ok=True)
    shutil.copy(uv_files.archive, place)
    brought(bare, bare.run(VERL_ENV_UV_BASE_URL=served.url + "/"), version, "its release archive")


def test_the_tool_finds_a_python_with_none_on_path(bare, served, uv_files):
    """Without any Python, uv is asked to bring one; where that is forbidden, the hint says what would help."""
    bare.without("python3")
    shutil.copy(uv_files.archive, served.folder)
    done = bare.run(VERL_ENV_UV_BASE_URL=served.url)
    assert done.returncode == 6
    assert "no Python 3.10 or newer is here; uv fetches one" in done.stderr
    assert "hint: install Python 3.10 or newer, or set UV_PYTHON_INSTALL_MIRROR" in done.stderr


def test_tampered_archive(bare, served, uv_files):
    """An archive that is not the pinned one is not unpacked."""
    (served.folder / uv_files.archive.name).write_bytes(uv_files.archive.read_bytes() + b"x")
    done = bare.run(VERL_ENV_UV_BASE_URL=served.url)
    nothing_left(bare, done, "uv from its release archive is not the file whose sha256 this script knows")


def test_archive_without_a_pin_is_not_used(bare, served, uv_files):
    """No hash, no use."""
    shutil.copy(uv_files.archive, served.folder)
    bare.repin(**{name: "" for name in uv_files.pins if "ARCHIVE" in name})
    nothing_left(bare, bare.run(VERL_ENV_UV_BASE_URL=served.url), "no sha256 is pinned")


def test_no_way_at_all(bare):
    """Each way is named, and what to set."""
    done = bare.run(VERL_ENV_UV_BASE_URL="http://user:s3cret@127.0.0.1:9/uv")
    nothing_left(bare, done, "could not be fetched")
    assert "s3cret" not in done.stderr
    assert "UV_DEFAULT_INDEX" in done.stderr.splitlines()[-1]


def test_changed_uv_is_brought_again(bare, served, uv_files):
    """A uv in our folder that is no longer what was unpacked is not started."""
    shutil.copy(uv_files.archive, served.folder)
    assert bare.run("--no-run", VERL_ENV_UV_BASE_URL=served.url).returncode == 0
    (uv,) = (bare.self / "uv").glob("*/uv")
    uv.write_text("#!/bin/sh\necho pwned\n")
    shutil.rmtree(bare.self / "tool")
    done = bare.run(VERL_ENV_UV_BASE_URL=served.url)
    brought(bare, done, bare.pin("UV_ARCHIVE_VERSION"), "its release archive")


@pytest.mark.network
def test_pinned_wheel_is_the_published_one(release):
    """The pins of this tree, unchanged, against the index this machine uses, with pip and then with its own settings."""
    if not HAS_PIP:
        pytest.skip("this Python has neither pip nor ensurepip")
    shutil.rmtree(release.home / ".local")
    release.command("python3", f'exec {sys.executable} "$@"')
    del release.env["PIP_CONFIG_FILE"]
    names = ("PIP_", "SSL_CERT", "REQUESTS_CA", "CURL_CA", "HTTP", "http", "NO_PROXY", "no_proxy")
    settings = {name: value for name, value in os.environ.items() if name.startswith(names)}
    done = release.run(**settings)
    brought(release, done, release.pin("UV_VERSION"), "pip")
