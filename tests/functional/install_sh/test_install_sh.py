"""install.sh as a text: it parses everywhere, runs nothing when cut, names no registry; and the release stamp."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "install.sh"
LINES = SCRIPT.read_text().splitlines(keepends=True)
WORDS = {"dash": ["dash"], "bash": ["bash"], "busybox": ["busybox", "sh"], "zsh": ["zsh"]}
LOCKED = "# a comment\ntomlkit==0.13.3 ; python_version < '4' \\\n    --hash=sha256:" + "ab" * 32 + "\n    # via x\n"


@pytest.fixture
def tripwire(tmp_path):
    """Return a PATH on which every command leaves a trace, and the trace."""
    folder, trace = tmp_path / "wired", tmp_path / "trace"
    folder.mkdir()
    names = {
        "sed",
        "grep",
        "uname",
        "mkdir",
        "dirname",
        "curl",
        "wget",
        "python3",
        "tr",
        "cat",
        "rm",
        "cut",
        "df",
        "verl-env",
    }
    for name in names:
        (folder / name).write_text(f'#!/bin/sh\necho {name} >>"{trace}"\n')
        (folder / name).chmod(0o755)
    return str(folder), trace


def pipe(shell, text, path, home):
    """Pipe a text into a shell; return what it printed on stdout."""
    words = [shutil.which(WORDS[shell][0]), *WORDS[shell][1:]]
    env = {"PATH": path, "HOME": str(home)}
    return subprocess.run(words, input=text, env=env, cwd=home, text=True, capture_output=True, check=False).stdout


def cuts(shell):
    """Return the line numbers to cut after: all for dash; where something is complete for the others."""
    everywhere = range(len(LINES))
    if shell == "dash":
        return everywhere
    closed = [it for it in everywhere if it and re.match(r"[}A-Z#]|set |$", LINES[it - 1])]
    return sorted({*closed, *(it + 1 for it in closed if it + 1 < len(LINES))})


def test_cut_after_any_line_runs_nothing(shell, tripwire, tmp_path):
    """A download that ended early starts no command, prints nothing and makes no file."""
    path, trace = tripwire
    home = tmp_path / "home"
    home.mkdir()
    for count in cuts(shell):
        assert pipe(shell, "".join(LINES[:count]), path, home) == "", count
    assert not trace.exists()
    assert list(home.iterdir()) == []


def test_cut_inside_the_last_line_runs_nothing(shell, tripwire, tmp_path):
    """The last line runs whole or not at all: `main` without its arguments would not be what was asked."""
    path, trace = tripwire
    whole = "".join(LINES[:-1])
    for length in range(len(LINES[-1].rstrip("\n"))):
        assert pipe(shell, whole + LINES[-1][:length], path, tmp_path) == "", length
    assert not trace.exists()


def test_the_whole_runs_something(shell, tripwire, tmp_path):
    """The two tests above can fail: uncut, the same trap springs."""
    path, trace = tripwire
    pipe(shell, "".join(LINES), path, tmp_path)
    assert trace.exists()


def test_last_line_calls_main():
    """Everything before the last line only defines."""
    assert LINES[-1] == 'main "$@"\n'
    assert "set -eu\n" in LINES


def test_parses_in(shell):
    """Each shell's own parser accepts it."""
    done = subprocess.run([*WORDS[shell], "-n", SCRIPT], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_shellcheck_is_content():
    """Not even an informational finding."""
    if not shutil.which("shellcheck"):
        pytest.skip("no shellcheck here")
    done = subprocess.run(["shellcheck", SCRIPT], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_no_sudo_no_registry_no_profile():
    """No root, no index but the user's own, no shell profile."""
    code = "".join(line for line in LINES if not line.lstrip().startswith("#"))
    registry = "py" + "pi.org|python" + "hosted"
    assert re.findall(rf"\bsudo\b|{registry}|\.bashrc|\.profile|\.zshrc", code) == []


def test_help_is_complete(node):
    """`--help` names each option, each variable and each exit code, and needs no home."""
    done = node.run("--help", piped=False)
    assert done.returncode == 0
    used = set(re.findall(r"VERL_ENV_[A-Z_]+", "".join(LINES)))
    passed_on = {"VERL_ENV_CPU", "VERL_ENV_DRIVER", "VERL_ENV_NODE", "VERL_ENV_GPU", "VERL_ENV_TEST_ROOT"}
    assert used - set(re.findall(r"VERL_ENV_[A-Z_]+", done.stdout)) == passed_on
    codes = {int(it) for it in re.findall(r"fail (\d+)", "".join(LINES))}
    assert codes == {2, 3, 6, 11}
    assert all(re.search(rf"(^|\s){code}\s", done.stdout.split("exit codes:")[1]) for code in codes)


def test_stamp_writes_what_install_sh_reads(stamp, tmp_path, make_tool_wheel):
    """The stamped script differs from the tree's in version, hash and requirements only, and parses."""
    wheel = make_tool_wheel(tmp_path)
    (tmp_path / "runtime.txt").write_text(LOCKED)
    assert stamp.main([str(wheel), "--requirements", str(tmp_path / "runtime.txt")]) == 0
    stamped = (tmp_path / "install.sh").read_text()
    added = [line for line in stamped.splitlines() if line + "\n" not in LINES]
    digest = stamp.hashlib.sha256(wheel.read_bytes()).hexdigest()
    assert added == [
        'RELEASE_VERSION="1.2.3"',
        f'RELEASE_SHA256="{digest}"',
        "tomlkit==0.13.3 ; python_version < '4' \\",
        f"    --hash=sha256:{'ab' * 32}",
    ]
    assert os.access(tmp_path / "install.sh", os.X_OK)
    assert subprocess.run(["sh", "-n", tmp_path / "install.sh"], check=False).returncode == 0
    again = stamp.main(
        [str(wheel), "--requirements", str(tmp_path / "runtime.txt"), "--install-sh", str(tmp_path / "install.sh")]
    )
    assert (again, (tmp_path / "install.sh").read_text()) == (0, stamped)


@pytest.mark.parametrize(
    ("name", "requirements", "said"),
    [
        pytest.param("other-1.0-py3-none-any.whl", "", "not a wheel of verl-env", id="foreign wheel"),
        pytest.param("verl_env-1.2.3-py3-none-any.whl", "tomlkit>=0.13\n", "not pinned", id="range"),
        pytest.param("verl_env-1.2.3-py3-none-any.whl", "tomlkit==0.13.3\n", "no sha256", id="no hash"),
        pytest.param("verl_env-1.2.3-py3-none-any.whl", None, "No such file", id="no requirements"),
    ],
)
def test_stamp_refuses(stamp, tmp_path, capsys, name, requirements, said):
    """A release that could not be checked later is not stamped."""
    (tmp_path / name).write_bytes(b"x")
    if requirements is not None:
        (tmp_path / "runtime.txt").write_text(requirements)
    assert stamp.main([str(tmp_path / name), "--requirements", str(tmp_path / "runtime.txt")]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "install.sh").exists()
