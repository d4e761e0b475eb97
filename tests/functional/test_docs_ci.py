"""The CI files in docs/examples do what docs/ci.md says: their own commands are run here."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys

import pytest
import yaml

from tiny import ROOT, Done
from verl_env import __version__
from verl_env.lock.compare import KINDS

EXAMPLES = ROOT / "docs/examples"


@pytest.fixture
def shell(tiny, tmp_path):
    """Return a function that runs a line of shell where `verl-env` is on PATH and a lock is committed."""
    assert 0 == tiny("lock", "--cpu", "-o", "pylock.toml").code
    tiny.index.stop()
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "verl-env").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m verl_env "$@"\n')
    (folder / "verl-env").chmod(0o755)
    (folder / "python").symlink_to(sys.executable)

    def run(line, **more):
        environ = tiny.variables(**more) | {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
        # GitHub runs `run:` so, unless told otherwise.
        words = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", line]
        done = subprocess.run(words, env=environ, cwd=tiny.work, capture_output=True, text=True, check=False)
        return Done(done.returncode, done.stdout, done.stderr)

    return run


def spoil(tiny):
    """Edit the committed lock."""
    path = tiny.work / "pylock.toml"
    path.write_text(path.read_text().replace('version = "99.0"', 'version = "99"', 1))


def steps():
    """Return the commands of the workflow, in order; the first installs verl-env."""
    document = yaml.safe_load((EXAMPLES / "github-workflow.yml").read_text())
    assert [["push", "pull_request"], {"contents": "read"}] == [list(document[True]), document["permissions"]]
    (job,) = document["jobs"].values()
    return [it["run"] for it in job["steps"] if "run" in it]


def test_workflow(tiny, shell):
    """Each command of the workflow succeeds on a lock that is as written; the check fails, inline, on one that is not."""
    install, check, show = steps()
    assert f'python -m pip install "verl-env=={__version__}"' == install
    assert [0, 0] == [shell(it, GITHUB_ACTIONS="true").code for it in (check, show)]
    spoil(tiny)
    done = shell(check, GITHUB_ACTIONS="true")
    assert (1, True) == (done.code, "::error file=pylock.toml,line=" in done.err)


def test_pre_commit_hook(tiny, shell):
    """The hook's entry is what fails; it runs for lockfiles and requirements files, and for nothing else."""
    (repo,) = yaml.safe_load((EXAMPLES / "pre-commit-config.yaml").read_text())["repos"]
    (hook,) = repo["hooks"]
    assert ([f"verl-env=={__version__}"], False) == (hook["additional_dependencies"], hook["pass_filenames"])
    names = [
        "pylock.toml",
        "a/pylock.verl.toml",
        "requirements-extra.txt",
        "pyproject.toml",
        "pylock.a.b.toml",
        "xpylock.toml",
    ]
    assert names[:3] == [it for it in names if re.search(hook["files"], it)]
    assert 0 == shell(hook["entry"]).code
    spoil(tiny)
    assert 1 == shell(hook["entry"]).code


def test_report_of_other_systems(tiny, shell):
    """The line of docs/ci.md that makes a report of `--json` prints each difference."""
    text = (ROOT / "docs/ci.md").read_text()
    line = next(it for it in re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL) if "--json" in it)
    spoil(tiny)
    done = shell(f"set +o pipefail\n{line}")
    assert ["pylock.toml", "version", "verl", "verl is 99 in the file, and should be 99.0"] == done.out.splitlines()[
        0
    ].split("\t")


def test_documented_kinds():
    """Every kind of difference is in docs/ci.md, and no other."""
    said = (ROOT / "docs/ci.md").read_text().split("`kind` is one of")[1].split(".")[0]
    assert sorted(KINDS) == sorted(re.findall(r"`(\w+)`", said))
