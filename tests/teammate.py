"""What people do to an environment that somebody else then wants: edit a file, add a package, commit to a checkout."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tiny import Tool
from verl_env import uv


def site_of(folder) -> Path:
    """Return the folder of packages of an environment."""
    return next(iter(sorted(Path(folder).glob("lib/python3*/site-packages"))))


def edit(path, text):
    """Edit a file as an editor does: a new one takes its place."""
    new = path.with_name(f"{path.name}.new")
    new.write_text(text)
    os.replace(new, path)


def add(folder, tiny, spec):
    """Install one more package, as people do."""
    words = [uv.executable(), "pip", "install", "--quiet", "--python", f"{folder}/bin/python", spec]
    subprocess.run(words, env=tiny.variables(), check=True, capture_output=True)


def elsewhere(tiny, tmp_path) -> Tool:
    """Return verl-env with another home, on the same index."""
    for name in ("home-2", "work-2"):
        (tmp_path / name).mkdir()
    other = Tool(home=tmp_path / "home-2", work=tmp_path / "work-2", environ=dict(tiny.environ))
    other.site, other.index = tiny.site, tiny.index
    return other


def git(folder, *words):
    """Run git with an identity of its own."""
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.invalid", "-c", "init.defaultBranch=main"]
    subprocess.run(["git", *identity, "-C", str(folder), *words], check=True, capture_output=True)
