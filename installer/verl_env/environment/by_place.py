"""Packages installed from one index after the other: where an index has another file under a pinned name. An edge.

uv takes a release from the first index that has it and fails when its hash is not the pinned one; asked of each index
by itself, for the files that it has, it finds them all.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from verl_env import uv
from verl_env.lock.build import hashed_requirements

if TYPE_CHECKING:
    from verl_env.lock.locate import Part
    from verl_env.matrix.pins import Pin
    from verl_env.process import Completed


_BUILD_HASHES = ("--require-build-hashes", "--preview-features", "build-dependency-hashes")


def install_by_place(
    python: Path, pins: tuple[Pin, ...], build: tuple[Pin, ...], parts: tuple[Part, ...], *, show: bool
) -> Completed:
    """Install these pins, each from the place that has it; return uv's last answer, the first that failed if any."""
    done: Completed | None = None
    with tempfile.TemporaryDirectory(prefix="verl-env-") as name:
        folder = Path(name)
        (folder / "build.txt").write_text(hashed_requirements(build), encoding="utf-8")
        words = ["pip", "install", "--no-deps", "--require-hashes", "--python", str(python)]
        for part in parts:
            mine = tuple(pin for pin in pins if pin.file in part.files)
            (folder / "requirements.txt").write_text(hashed_requirements(mine), encoding="utf-8")
            sdists = any(pin.is_sdist for pin in mine)
            options = ("--build-constraints", "build.txt", *_BUILD_HASHES) if sdists and build else ()
            if mine:
                argv = [*words, "--requirement", "requirements.txt", *options, *part.options]
                done = uv.run(argv, cwd=folder, show=show)
            if done and done.returncode != 0:
                return done
    if done is None:
        raise ValueError("nothing to install")
    return done
