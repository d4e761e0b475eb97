"""What is to be captured of an environment or a list: which packages by version, which by commit, which not. An edge.

It only asks git about editable checkouts; everything else is read already.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from verl_env.capture.environment import BOOTSTRAP
from verl_env.capture.on_index import Wanted, wanted_of
from verl_env.capture.unavailable import Unavailable
from verl_env.lock.captured import GitPackage
from verl_env.lock.checkout import git_answer
from verl_env.urls import bare_url

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from verl_env.capture.distributions import Installed
    from verl_env.capture.environment import Environment
    from verl_env.capture.listing import Listed, Listing


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """`wanted` is looked for on the index, `git` installed by commit, `unavailable` cannot be had; `notes` say more.

    `folders` are the repositories of this machine that packages of `git` lie in, by name.
    """

    wanted: tuple[Wanted, ...]
    git: tuple[GitPackage, ...]
    unavailable: tuple[Unavailable, ...]
    notes: tuple[str, ...] = ()
    folders: Mapping[str, Path] = field(default_factory=dict)


def plan_environment(environment: Environment) -> Plan:
    """Sort an environment's distributions by how each can be had again."""
    needed = _needed(environment.installed)
    pinned = {pin.name: pin for pin in environment.lock.pins} if environment.lock else {}
    wanted: list[Wanted] = []
    git: list[GitPackage] = []
    missing: list[Unavailable] = []
    left = []
    for it in environment.installed:
        if it.name in BOOTSTRAP and it.name not in needed:
            left.append(it.name)
        elif it.origin in ("editable", "vcs"):
            found = _of_repository(it)
            (git if isinstance(found, GitPackage) else missing).append(found)  # type: ignore[arg-type]
        elif it.origin == "directory" or (it.origin == "archive" and it.url is None):
            missing.append(_local(it))
        else:
            pin = pinned.get(it.name)
            known = pin.sha256 if pin and pin.version == it.version else it.sha256
            hashes = (f"sha256:{known}",) if known else ()
            wanted.append(Wanted(name=it.name, version=it.version or "", tags=it.tags, hashes=hashes))
    notes = [f"{', '.join(left)}: not in the lock, since nothing in the environment needs them"] if left else []
    by_commit = {it.name for it in git}
    folders = {it.name: it.folder for it in environment.installed if it.name in by_commit and it.folder}
    return Plan(wanted=tuple(wanted), git=tuple(git), unavailable=tuple(missing), notes=tuple(notes), folders=folders)


def _needed(installed: tuple[Installed, ...]) -> set[str]:
    """Return the names that any distribution requires without an extra."""
    found = set()
    for line in (line for it in installed for line in it.requires):
        try:
            wish = Requirement(line)
        except InvalidRequirement:
            continue
        if wish.marker is None or "extra" not in str(wish.marker):
            found.add(str(canonicalize_name(wish.name)))
    return found


def _local(it: Installed) -> Unavailable:
    return Unavailable(
        name=it.name,
        version=it.version,
        reason="local-file",
        what=f"{it.name} {it.version} was installed from a file or folder of that machine",
        remedy="build a wheel of it, and set UV_FIND_LINKS to its folder",
    )


def _of_repository(it: Installed) -> GitPackage | Unavailable:
    """Lock an editable or git package by its commit, unless nobody else could get that commit."""
    vcs = it.vcs
    if vcs and vcs.kind != "git":
        return _irreproducible(it, "no-commit", f"comes from a repository of {vcs.kind}; only git's are locked")
    if vcs and vcs.commit and "://" in vcs.url:
        return _by_commit(it, vcs.url, vcs.commit, vcs.subdirectory)
    # A repository of this machine: of an editable its files count, of an installed commit only that commit.
    commit = vcs.commit if vcs else _head(it.folder)
    if it.folder is None or commit is None:
        return _irreproducible(it, "no-commit", "is a checkout that git knows no commit of")
    if not vcs and git_answer(it.folder, "status", "--porcelain", "--untracked-files=no"):
        return _irreproducible(it, "dirty", f"has changes that no commit holds (on {commit[:12]})")
    remote = _remote(it.folder)
    if remote is None or not git_answer(it.folder, "branch", "--remotes", "--contains", commit):
        return _irreproducible(it, "unpushed", f"is at commit {commit[:12]}, which no remote is known to have")
    inside = (vcs.subdirectory if vcs else git_answer(it.folder, "rev-parse", "--show-prefix")) or ""
    return _by_commit(it, remote, commit, inside.rstrip("/"))


def _by_commit(it: Installed, url: str, commit: str, inside: str | None) -> GitPackage:
    return GitPackage(name=it.name, version=it.version or "", url=url, commit=commit, subdirectory=inside or "")


def _head(folder: Path | None) -> str | None:
    return git_answer(folder, "rev-parse", "HEAD") if folder and folder.is_dir() else None


def _remote(folder: Path) -> str | None:
    """Return the remote as a URL that others can use, without credentials; None for a path."""
    said = git_answer(folder, "config", "--get", "remote.origin.url")
    if said is None or said.startswith(("/", ".", "~", "file:")):
        return None
    if "://" not in said:  # user@host:path, as ssh writes it
        host, _, path = said.partition(":")
        return bare_url(f"ssh://{host}/{path}") if path else None
    return bare_url(said)


def _irreproducible(it: Installed, reason: str, what: str) -> Unavailable:
    return Unavailable(
        name=it.name,
        version=it.version,
        reason=reason,
        what=f"{it.name} {it.version} {what}",
        remedy="commit and push it, then capture again",
    )


def plan_list(listing: Listing, in_row: frozenset[str]) -> Plan:
    """Sort a list's lines; of another manager's packages, only those that the nearest row has are looked for."""
    wanted: list[Wanted] = []
    git: list[GitPackage] = []
    missing: list[Unavailable] = []
    left = 0
    for it in listing.packages:
        if it.foreign and (it.name not in in_row or not it.version):
            left += 1
        elif it.vcs:
            (git if it.vcs.commit else missing).append(_of_line(it))  # type: ignore[arg-type]
        elif it.version:
            wanted.append(wanted_of(it))
        elif listing.complete and not it.spec:
            missing.append(_unnamed(it))
    notes = [f"{left} packages of conda's own (libraries, the interpreter) are not in a lock"] if left else []
    seen = {it.name: it for it in wanted}
    return Plan(wanted=tuple(seen.values()), git=tuple(git), unavailable=tuple(missing), notes=tuple(notes))


def _of_line(it: Listed) -> GitPackage | Unavailable:
    if it.vcs and it.vcs.commit:
        sub = it.vcs.subdirectory or ""
        return GitPackage(
            name=it.name, version=it.version or "", url=it.vcs.url, commit=it.vcs.commit, subdirectory=sub
        )
    return Unavailable(
        name=it.name,
        version=it.version,
        reason="no-commit",
        what=f"{it.name} comes from a repository, and no commit is named",
        remedy=f"write {it.name} @ git+URL@COMMIT",
    )


def _unnamed(it: Listed) -> Unavailable:
    return Unavailable(
        name=it.name,
        version=None,
        reason="no-version",
        what=f"{it.name} has no version that can be read",
        remedy=f"write {it.name}==VERSION",
    )
