"""A login to an index reaches the index, and nobody else: it is neither printed nor written."""

from __future__ import annotations

import subprocess

import pytest

SECRET = "s3cr3t-t0k3n"  # noqa: S105 - it opens an index of our own


def files_with(folder, secret):
    """Return the files below a folder that hold the secret, or whose name does."""
    return [
        str(path)
        for path in sorted(folder.rglob("*"))
        if secret in path.name or (path.is_file() and not path.is_symlink() and secret.encode() in path.read_bytes())
    ]


@pytest.fixture
def login(tiny, serve, wheels):
    """Return verl-env with an index that asks for a login."""
    tiny.index = serve(wheels["torch"].parent, login=f"robot:{SECRET}")
    return tiny


@pytest.mark.parametrize(
    "words", [["install", "--cpu"], ["install", "--cpu", "-v"], ["lock", "--cpu", "-v"]], ids=" ".join
)
def test_a_login_is_neither_printed_nor_written(login, words):
    """Not on stdout, not on stderr (even with -v), not in the lock, the environment, a log or the cache."""
    done = login(*words)
    assert 0 == done.code, done.err
    assert SECRET not in done.out + done.err
    assert [] == files_with(login.home, SECRET) + files_with(login.work, SECRET)


def test_a_login_is_not_in_errors(login):
    """When the index is gone, it is named without the login, as text and as JSON."""
    login.index.stop()
    for words in (["install", "--cpu", "-v"], ["lock", "--cpu", "--json"]):
        done = login(*words)
        assert 5 == done.code
        assert SECRET not in done.out + done.err
        assert login.index.host in done.err
    assert [] == files_with(login.home, SECRET) + files_with(login.work, SECRET)


def test_a_failed_download_leaves_no_login_in_its_log(login, wheels):
    """Uv's words are kept in a log when it fails; the login is not among them."""
    files = login.index.page("torch", "v1+json")
    login.index.hashes[wheels["torch"].name] = "0" * 64
    done = login("install", "--cpu", "-v")
    assert (5, True) == (done.code, files is not None)
    assert SECRET not in done.out + done.err
    assert [] == files_with(login.home, SECRET)


def test_a_login_in_a_settings_file(login):
    """A login from pip's own settings works, and stays there."""
    url, login.index.login = login.index.url, login.index.login
    path = login.home / ".config/pip/pip.conf"
    path.parent.mkdir(parents=True)
    path.write_text(f"[global]\nindex-url = {url}\n")
    index, login.index = login.index, None
    done = login("install", "--cpu", "-v", PIP_CONFIG_FILE="")
    assert (0, True) == (done.code, len(index.asked) > 0), done.err
    assert SECRET not in done.out + done.err
    assert [str(path)] == files_with(login.home, SECRET)


def test_wrong_login_is_said_without_it(tiny, serve, wheels):
    """A login that the index refuses: code 5, the index named, the login not."""
    tiny.index = serve(wheels["torch"].parent, login="robot:another")
    done = tiny("install", "--cpu", "-v", UV_DEFAULT_INDEX=f"http://robot:{SECRET}@{tiny.index.host}/simple/")
    assert 5 == done.code
    assert SECRET not in done.out + done.err


def test_a_login_is_not_on_command_lines(login):
    """Every user of a machine can read the command lines of its processes: uv gets the login another way."""
    login.index.gated = "torch-"
    child = login.start("install", "--cpu")
    while not login.index.waiting.wait(0.1):
        assert None is child.poll()
    processes = subprocess.run(["ps", "-eo", "args="], capture_output=True, text=True, check=True).stdout
    login.index.gate.set()
    assert 0 == login.finish(child).code
    assert "pip sync" in processes
    assert SECRET not in processes


def test_a_login_is_not_captured(login):
    """An environment from an index with a login becomes a lock without it; nor is it in any answer about both."""
    assert 0 == login("install", "--cpu").code
    for words in (
        ["capture", "current", "-v", "-o", "pylock.captured.toml"],
        ["capture", "current", "--with-patches", "--json", "--dry-run"],
        ["lock", "--check", "-v", "pylock.captured.toml"],
        ["check", "current", "--json"],
        ["diff", "current", "pylock.captured.toml", "--json"],
    ):
        done = login(*words)
        assert 0 == done.code, done.err
        assert SECRET not in done.out + done.err
    assert [] == files_with(login.home, SECRET) + files_with(login.work, SECRET)


PASTED = f"""\
--extra-index-url https://robot:{SECRET}@index.example/simple
torch==2.13.0
tiny-sub==1.2
mine @ https://robot:{SECRET}@files.example/mine-1.0-py3-none-any.whl?token={SECRET}
theirs @ git+https://{SECRET}@git.example/theirs.git@{"0" * 40}
-e git+ssh://robot:{SECRET}@git.example/ours.git#egg=ours
file:///home/{SECRET}/yours-1.0-py3-none-any.whl
"""


@pytest.mark.parametrize(
    "words",
    [["check"], ["diff", "tiny"], ["capture", "--no-lock", "--from"], ["capture", "--partial", "--from"]],
    ids=" ".join,
)
@pytest.mark.parametrize("how", [[], ["--json"], ["-v"]], ids=["text", "json", "verbose"])
def test_what_is_pasted_is_not_repeated(tiny, words, how):
    """Logins, tokens and home folders of a pasted list reach no answer, no lock and no log."""
    path = tiny.home / "freeze.txt"
    path.write_text(PASTED)
    done = tiny(*words, path, *how, GIT_TERMINAL_PROMPT="0")
    assert done.code in (0, 1, 5), done.err
    assert SECRET not in done.out + done.err
    assert [str(path)] == files_with(tiny.home, SECRET)
    assert [] == files_with(tiny.work, SECRET)
