"""What people get wrong: one line of what happened, one hint, the documented code, and nothing half-written."""

from __future__ import annotations

import os
import subprocess

import pytest

from tiny import MINOR, build_wheel, snapshot


def refused(tool, code, *words, **options):
    """Run what must be refused; return what it said, having checked its form and that nothing was left."""
    before = snapshot(tool.work)
    done = tool(*words, **options)
    assert code == done.code, done.err
    assert before == snapshot(tool.work)
    assert "" == done.out
    assert "Traceback" not in done.err
    lines = done.err.splitlines()
    assert 1 == len([line for line in lines if line.startswith("error: ")]), done.err
    assert 1 == len([line for line in lines if line.startswith("hint: ")]), done.err
    environments = tool.data / "environments"
    left = [it.name for it in environments.iterdir() if not it.name.endswith(".lock")] if environments.is_dir() else []
    assert [] == left
    assert not os.path.lexists(tool.current)
    return done.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param(["--driver", "banana"], "`banana` is no NVIDIA driver version", id="driver"),
        pytest.param(["--driver", "580"], "`580` is no NVIDIA driver version", id="half a driver"),
        pytest.param(["--gpu", "h2000"], "no GPU is known by the name `h2000`", id="GPU"),
        pytest.param(["--compute-capability", "ninety"], "`ninety` is no compute capability", id="capability"),
        pytest.param(["--glibc", "new"], "`new` is no glibc version", id="glibc"),
        pytest.param(["--arch", "sparc"], "`sparc` is no architecture", id="architecture"),
        pytest.param(["--node", "nowhere.json"], "nowhere.json", id="node file"),
        pytest.param(["--row", "tinny"], "no row is called `tinny`", id="row"),
        pytest.param(["--matrix", "nowhere"], "no matrix folder at `nowhere`", id="matrix folder"),
        pytest.param(["--engine", "tgi"], "invalid choice: 'tgi'", id="engine"),
        pytest.param(["--python", "three"], "`three` is no Python version", id="Python"),
        pytest.param(["--no-such-option"], "--no-such-option", id="option"),
    ],
)
@pytest.mark.parametrize("command", ["install", "lock", "matrix explain"])
def test_arguments(tiny, command, words, said):
    """A value that cannot be understood is named; code 2."""
    assert said in refused(tiny, 2, *command.split(), *words)


def test_unknown_row_names_close_ones(tiny):
    """The hint has what was probably meant."""
    assert "known: tiny" in refused(tiny, 2, "install", "--row", "tinny")


def test_old_driver(tiny):
    """Code 4; every row with why it fell, and what driver would do."""
    said = refused(tiny, 4, "install", "--driver", "470.82.01", "--gpu", "a100")
    assert "error: no row fits this node" in said
    for row in ("tiny", "cpu", "cpu-pypi", "verl091-vllm024-cu130"):
        assert f"\n  {row}: " in said
    assert "CUDA 13.0 needs driver >= 580 (580.65.06 for native); this node has 470.82.01" in said
    assert "hint: a driver >= 525.60.13 would do" in said


@pytest.mark.parametrize(
    ("content", "said"),
    [
        pytest.param(None, "cannot be read: No such file or directory", id="not there"),
        pytest.param(b"\xff\xfe\x00", "is not text", id="binary"),
        pytest.param(b"", "", id="empty"),
        pytest.param(b"a = 1\n", "", id="other TOML"),
        pytest.param(b'lock-version = "1.0"\ncreated-by = "uv"\npackages = []\n', "another tool", id="another tool's"),
    ],
)
def test_lockfiles(tiny, content, said):
    """Code 10; the file is named."""
    path = tiny.work / "pylock.x.toml"
    if content is not None:
        path.write_bytes(content)
    found = refused(tiny, 10, "install", path)
    assert "pylock.x.toml" in found
    assert said in found


def test_lockfile_that_is_a_folder(tiny):
    """Code 10 as well."""
    assert "Is a directory" in refused(tiny, 10, "install", tiny.work)


def test_truncated_lock(tiny):
    """A lock that was cut is refused; nothing is installed."""
    assert 0 == tiny("lock", "--cpu").code
    path = tiny.work / "pylock.tiny.toml"
    whole = path.read_bytes()
    for part in (0.3, 0.6, 0.9):
        path.write_bytes(whole[: int(len(whole) * part)])
        assert "pylock.tiny.toml" in refused(tiny, 10, "install", path)


def test_changed_lock(tiny):
    """A lock that was edited does not give its digest."""
    assert 0 == tiny("lock", "--cpu").code
    path = tiny.work / "pylock.tiny.toml"
    path.write_text(path.read_text().replace("it's set", "it is set"))
    assert "was changed after it was written" in refused(tiny, 10, "install", path)


def test_lock_for_a_gpu_without_one(tiny, wheels):
    """A CUDA lock on a machine without a driver says so, and how to build for GPU nodes here."""
    tiny.site.add_row("tiny-gpu", [wheels["torch-gpu"], wheels["verl"], wheels["tiny-sub"]], cuda="13.0")
    assert 0 == tiny("lock", "--driver", "580.95.05", "--row", "tiny-gpu").code
    said = refused(tiny, 10, "install", tiny.work / "pylock.tiny-gpu.toml")
    assert "no NVIDIA driver is loaded here" in said
    assert "--driver VERSION" in said


def test_lock_for_a_newer_driver(tiny, wheels):
    """Both drivers are named."""
    tiny.site.add_row("tiny-gpu", [wheels["torch-gpu"], wheels["verl"], wheels["tiny-sub"]], cuda="13.0")
    assert 0 == tiny("lock", "--driver", "580.95.05", "--row", "tiny-gpu").code
    said = refused(tiny, 10, "install", tiny.work / "pylock.tiny-gpu.toml", "--driver", "550.54.15")
    assert "the lock needs driver >= 580 (CUDA 13.0), and this node has 550.54.15" in said


@pytest.mark.parametrize("options", [[], ["--no-space-check"]], ids=["checked", "space not checked"])
def test_home_that_is_a_file(tiny, options):
    """A target that is a file: code 11 before anything, and the file is kept."""
    file = tiny.work / "file"
    file.write_text("content")
    said = refused(tiny, 11, "install", "--cpu", "--home", file, *options)
    assert f"{file} is not a folder" in said
    assert ("content", []) == (file.read_text(), tiny.index.asked)


def mount(folder, options):
    """Mount a file system in memory, or skip where only root could."""
    folder.mkdir()
    argv = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"a file system of our own cannot be mounted here: {done.stderr.strip()}")


@pytest.fixture
def read_only(tmp_path):
    """Mount a file system that takes no writes."""
    mount(tmp_path / "read only", "ro,size=256k")
    yield tmp_path / "read only"
    subprocess.run(["umount", tmp_path / "read only"], check=True)


def test_target_that_cannot_be_written(tiny, read_only):
    """A target on a read-only file system is said before anything is fetched."""
    said = refused(tiny, 11, "install", "--cpu", "--home", read_only)
    assert "cannot be written" in said
    assert [] == tiny.index.asked


@pytest.fixture
def small_disk(tmp_path):
    """Mount a file system of 256 kB."""
    mount(tmp_path / "small", "size=256k")
    yield tmp_path / "small"
    subprocess.run(["umount", tmp_path / "small"], check=True)


@pytest.fixture
def big_row(tiny, tmp_path, serve, wheels):
    """Let the row to choose need more than 256 kB, of the kind that does not compress."""
    folder = tmp_path / "big"
    files = {"big/__init__.py": "", "big/data": os.urandom(400_000).hex()}
    big = build_wheel(folder, "big", "1.0", files=files)
    for name in ("torch", "verl", "tiny-sub"):
        os.link(wheels[name], folder / wheels[name].name)
    chosen = {"verl": "100.0", "torch": "2.13.0"}
    tiny.site.add_row("tiny-big", [*folder.glob("[!b]*.whl"), big], set=chosen, imports=("big",))
    tiny.index = serve(folder)
    return tiny


def test_no_space(big_row, small_disk):
    """No room is seen before the first byte: code 11, what is needed, what is there."""
    said = refused(big_row, 11, "install", "--cpu", "--home", small_disk)
    assert "error: no space: `" in said
    assert "(tmpfs)" in said
    assert not (small_disk / "environments").exists()


def test_no_space_in_the_middle(big_row, small_disk, tmp_path):
    """When the disk fills up all the same: code 6, and the half-built environment is gone."""
    cache = {"UV_CACHE_DIR": str(tmp_path / "cache")}
    said = refused(big_row, 6, "install", "--cpu", "--home", small_disk, "--no-space-check", **cache)
    assert "No space left on device" in said
    left = [it for it in (small_disk / "environments").iterdir() if not it.name.endswith(".lock")]
    assert [] == left


def test_missing_python_of_a_lock(tiny, wheels):
    """A lock for a Python that is not here and cannot be brought: code 11, and what is here."""
    tiny.site.add_row("tiny-old", [wheels["torch"], wheels["verl"], wheels["tiny-sub"]], python=("3.7",))
    assert 0 == tiny("lock", "--cpu", "--row", "tiny-old").code
    said = refused(tiny, 11, "install", tiny.work / "pylock.tiny-old.toml")
    assert "no Python 3.7 is on this node (found: " in said
    assert f"{MINOR}." in said


def test_missing_python_of_a_row(tiny, wheels):
    """A row whose only Python is missing falls for that reason, and the next is taken."""
    wanted = [wheels["torch"], wheels["verl"], wheels["tiny-sub"]]
    tiny.site.add_row("tiny-old", wanted, python=("3.7",), set={"verl": "100.0", "torch": "2.13.0"})
    done = tiny("install", "--cpu", "--json")
    assert (0, "tiny") == (done.code, done.json["data"]["receipt"]["row"]), done.err
    assert "row tiny-old was passed over: no Python 3.7 is on this node" in done.err


def test_matrix_with_faults(tiny):
    """Code 9; every fault of every file at once."""
    tiny.site.write("rows/bad.toml", 'title = 3\npython = [3.10]\narch = ["x86_64"]\n[set]\n')
    said = refused(tiny, 9, "matrix", "list")
    assert "rows/bad.toml: python[0]: expected str, found float `3.1`" in said
    assert "rows/bad.toml: title: expected str, found int `3`" in said


def test_index_out_of_reach(tiny):
    """Code 5; which packages, and where it was looked for."""
    tiny.index.stop()
    said = refused(tiny, 5, "install", "--cpu")
    assert "out of reach from this node: " in said
    assert tiny.index.host in said


@pytest.mark.parametrize("command", [["smoke"], ["env"], ["run", "--", "true"]], ids=lambda words: words[0])
def test_no_environment(tool, command):
    """Before anything is installed: code 12, and how to build one."""
    assert "hint: build one: verl-env install" in refused(tool, 12, *command)


@pytest.mark.parametrize("words", [[], ["no-such-command"], ["matrix"], ["matrix", "no-such-action"]])
def test_commands(tool, words):
    """No command, or an unknown one: code 2 and the way to --help."""
    assert "--help" in refused(tool, 2, *words)


def test_settings_file_that_cannot_be_read(tiny):
    """A broken uv.toml is named, and not passed over in silence."""
    path = tiny.home / ".config/uv/uv.toml"
    path.parent.mkdir(parents=True)
    path.write_text("index-url =")
    assert str(path) in refused(tiny, 2, "install", "--cpu")


def test_home_is_not_set(tiny):
    """A nameless user in a container gets one line; VERL_ENV_HOME is enough for everything."""
    said = refused(tiny, 2, "install", "--cpu", HOME="/nonexistent")
    assert "set HOME or VERL_ENV_HOME" in said


@pytest.mark.parametrize(
    ("said", "named"),
    [pytest.param("uv 0.8.17 (abc)", "uv 0.8.17", id="older"), pytest.param("what?", "no version", id="no uv at all")],
)
def test_another_uv_than_ours(tiny, tmp_path, said, named):
    """A uv that is older than the one verl-env was tried with is refused by its version, before it does anything."""
    other = tmp_path / "uv"
    other.write_text(f'#!/bin/sh\necho "{said}"\n')
    other.chmod(0o755)
    done = tiny("install", "--cpu", "--json", VERL_ENV_UV=str(other))
    (error,) = done.json["errors"]
    assert 6 == done.code
    assert named in error["message"]
    assert "VERL_ENV_UV" in error["hint"]
