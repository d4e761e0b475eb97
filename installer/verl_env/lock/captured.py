"""What a lock of a captured environment holds beyond packages: `[tool.verl-env.captured]`. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GitPackage:
    """A package that is installed from a repository, by commit; `url` has no credentials."""

    name: str
    version: str
    url: str
    commit: str
    subdirectory: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchedFile:
    """A file that the patch changes: its path from the folder of packages, and what it must be afterwards."""

    path: str
    package: str
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """Where the lock came from. `kind` is what was captured, `python` its exact Python, `nearest` the nearest row.

    `patch` is the name of a patch file beside the lock, `patch_sha256` its hash. `built` names packages that were
    built from source where they were captured, and are built again. `left_out` names what could not be had.
    """

    kind: str
    python: str = ""
    nearest: str = ""
    patch: str = ""
    patch_sha256: str = ""
    patched: tuple[PatchedFile, ...] = ()
    git: tuple[GitPackage, ...] = ()
    built: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
