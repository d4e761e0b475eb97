"""`verl-env lock --format`: the proved set for people who stay with their own tool, installed by that tool."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from verl_env import uv

LOCK = "pylock.tiny.toml"
SET = ["tiny-sub==1.2", "torch==2.13.0", "verl==99.0"]


@pytest.fixture
def venv(tiny, tmp_path):
    """Return a function that runs uv on an empty environment, with the tiny index and no settings of this machine."""
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(tiny.home), "UV_CACHE_DIR": str(tmp_path / "cache")}
    environ |= {"UV_DEFAULT_INDEX": tiny.index.url, "VIRTUAL_ENV": str(tmp_path / "venv"), "NO_PROXY": "127.0.0.1"}
    python = os.path.realpath(sys.executable)

    def run(*words, **more):
        done = subprocess.run(
            [uv.executable(), *words], env=environ | more, cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert 0 == done.returncode, done.stderr
        return done.stdout

    run("venv", "--quiet", "--python", python, str(tmp_path / "venv"))
    return run


def test_requirements_install(tiny, venv, tmp_path):
    """Hashed requirements of the row that fits, without a request: uv installs exactly them."""
    done = tiny("lock", "--cpu", "--format", "requirements")
    assert (0, []) == (done.code, tiny.index.asked), done.err
    (tmp_path / "r.txt").write_text(done.out)
    venv("pip", "sync", "--quiet", "--require-hashes", str(tmp_path / "r.txt"))
    assert SET == venv("pip", "freeze").split()


def test_constraints_hold(tiny, venv, tmp_path):
    """Constraints keep a later installation to the proved versions."""
    assert 0 == tiny("lock", "--cpu", "--format", "constraints", "-o", tmp_path / "c.txt").code
    venv("pip", "install", "--quiet", "-c", str(tmp_path / "c.txt"), "verl", "torch")
    assert SET == venv("pip", "freeze").split()


def test_of_a_lockfile(tiny):
    """A lockfile that is named is exported without a matrix that has its row."""
    assert 0 == tiny("lock", "--cpu").code
    one = tiny("lock", "--cpu", "--format", "requirements").out
    tiny.site = None
    assert one == tiny("lock", LOCK, "--format", "requirements").out


def test_dockerfile_builds(tiny, venv, tmp_path):
    """Each layer's own words, run in order on an empty environment, install the lock: hashes and no resolution."""
    text = tiny("lock", "--cpu", "--format", "dockerfile").out
    lists = tmp_path / "lists"
    lists.mkdir()
    for name, content in re.findall(
        r"^COPY <<'EOF' /opt/verl-env-lock/(\S+)\n(.*?)\nEOF$", text, re.MULTILINE | re.DOTALL
    ):
        (lists / name).write_text(content + "\n")
    layers = re.findall(r"^RUN --mount=\S+ uv (pip install .*?[^\\])$", text, re.MULTILINE | re.DOTALL)
    assert [1, 2, 3] == [int(re.search(r"lock/(\d)-", it)[1]) for it in layers]
    for words in layers:
        venv(*words.replace("\\\n", " ").replace("/opt/verl-env-lock", str(lists)).split())
    assert SET == venv("pip", "freeze").split()


def test_dockerfile_names_no_index(tiny):
    """A lock whose files are all on the default index gives a Dockerfile without any URL."""
    assert [] == re.findall(r"https?://", tiny("lock", "--cpu", "--format", "dockerfile").out)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        pytest.param(["a.toml", "b.toml"], 2, "one lockfile", id="two"),
        pytest.param(["none.toml"], 10, "cannot be read", id="none"),
        pytest.param(["--cpu", "-o", "."], 2, "is a folder", id="a folder"),
    ],
)
def test_refused(tiny, words, code, said):
    """What cannot be exported is one clear error."""
    done = tiny("lock", "--format", "requirements", *words)
    assert (code, True, "") == (done.code, said in done.err, done.out)


def test_json(tiny):
    """With --json the text is in the one object; with -o it is in the file."""
    assert (
        "torch==2.13.0 --hash=sha256:"
        in tiny("lock", "--cpu", "--format", "requirements", "--json").json["data"]["text"]
    )
    data = tiny("lock", "--cpu", "--format", "requirements", "-o", "r.txt", "--json").json["data"]
    assert (True, "requirements", True) == (data["written"], data["format"], (tiny.work / "r.txt").is_file())
