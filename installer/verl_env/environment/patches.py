"""The patch of a captured lock, applied to a new environment; and its packages that come from repositories. An edge.

Files are replaced by new ones and renamed, never written in place: hard links reach back into uv's cache and its
other environments. A patched file's RECORD says what it is now, so that it is no damage afterwards.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import os
from pathlib import Path
from typing import TYPE_CHECKING

from verl_env import output, process, uv
from verl_env.environment.unified_diff import DiffError, apply_diff, split_patch
from verl_env.errors import InstallError, PreflightError
from verl_env.files import read_bounded, write_atomically
from verl_env.lock.build import hashed_requirements

if TYPE_CHECKING:
    from collections.abc import Mapping

    from verl_env.lock.captured import Captured, GitPackage
    from verl_env.lock.lockfile import Lock

_COMPILE = ("-I", "-m", "compileall", "-q", "-f", "--invalidation-mode", "checked-hash")
_MOST_BYTES = 16_000_000


def check_patch(lock: Lock) -> tuple[str, ...]:
    """Refuse when the lock's patch is not beside it or is another one; return what will be changed, for the user."""
    captured = lock.table.captured
    if captured is None:
        return ()
    notes = [f"{it.name} {it.version} comes from {it.url} at {it.commit[:12]}" for it in captured.git]
    if captured.patch:
        _patch_text(lock, captured)
        packages = sorted({it.package for it in captured.patched})
        notes.append(f"{captured.patch} changes {len(captured.patched)} files of {', '.join(packages)}")
    return tuple(notes)


def apply_captured(lock: Lock, folder: Path, index_options: tuple[str, ...]) -> None:
    """Install the packages of repositories and apply the patch; raises InstallError, and then nothing is half done."""
    captured = lock.table.captured
    if captured is None:
        return
    build = hashed_requirements(lock.table.build)
    for package in captured.git:
        _install_git(package, folder / "bin" / "python", build, index_options)
    if captured.patch:
        _apply(split_patch(_patch_text(lock, captured)), captured, folder)
        output.note(f"patched: {', '.join(it.path for it in captured.patched[:4])}" + _more(len(captured.patched) - 4))


def _more(count: int) -> str:
    return f" and {count} more" if count > 0 else ""


def _patch_text(lock: Lock, captured: Captured) -> str:
    """Read the patch beside the lock, and hold it against the lock's hash."""
    path = Path(lock.origin).parent / captured.patch
    hint = "put the patch that was captured with it beside the lockfile"
    if not lock.origin or os.sep in captured.patch:
        raise PreflightError(f"the lock's patch `{captured.patch}` is not beside it", hint=hint)
    try:
        content = read_bounded(path, _MOST_BYTES)
    except OSError as err:
        raise PreflightError(f"the lock's patch `{captured.patch}` cannot be read: {err.strerror}", hint=hint) from err
    if hashlib.sha256(content).hexdigest() != captured.patch_sha256:
        raise PreflightError(f"`{captured.patch}` is not the patch that the lock was made with", hint=hint)
    return content.decode("utf-8")


def _install_git(package: GitPackage, python: Path, build: str, index_options: tuple[str, ...]) -> None:
    """Build one commit and install it without dependencies: they are pinned."""
    place = f"#subdirectory={package.subdirectory}" if package.subdirectory else ""
    spec = f"{package.name} @ git+{package.url}@{package.commit}{place}"
    done = uv.install_commit(python, spec, build, index_options)
    if done.returncode != 0:
        raise InstallError(
            f"uv could not install {package.name} from its repository",
            details=done.tail(),
            hint="see that the repository is in reach, and that the commit is still there",
        )


def _apply(pieces: Mapping[str, str], captured: Captured, folder: Path) -> None:
    """Apply each file's piece, hold the result against the lock, and replace the file."""
    site = _site_packages(folder)
    ready: dict[Path, bytes] = {}
    for file in captured.patched:
        path = Path(os.path.normpath(site / file.path))
        if file.path not in pieces or not path.is_relative_to(folder):
            raise InstallError(f"the patch says nothing of `{file.path}`", hint="capture the environment again")
        try:
            before = path.read_bytes() if path.exists() else b""
            if hashlib.sha256(before).hexdigest() == file.sha256:
                continue  # of a package that did not have to be installed again
            after = apply_diff(before.decode("utf-8"), pieces[file.path]).encode("utf-8")
        except (OSError, ValueError, DiffError) as err:
            raise InstallError(
                f"the patch does not fit `{file.path}`: {err}", hint="capture the environment again"
            ) from err
        if hashlib.sha256(after).hexdigest() != file.sha256:
            raise InstallError(f"`{file.path}` is another file after the patch", hint="capture the environment again")
        ready[path] = after
    for path, content in ready.items():
        write_atomically(path, content)
    _correct_records(site, ready)
    _compile(folder, [path for path in ready if path.suffix == ".py"])


def _site_packages(folder: Path) -> Path:
    found = next(iter(sorted(folder.glob("lib/python3*/site-packages"))), None)
    if found is None:
        raise InstallError(f"`{folder}` has no site-packages", hint="install it again")
    return found


def _correct_records(site: Path, changed: Mapping[Path, bytes]) -> None:
    """Write the new hashes into the RECORDs that name these files."""
    for record in sorted(site.glob("*.dist-info/RECORD")):
        text = record.read_text(encoding="utf-8")
        rows = list(csv.reader(io.StringIO(text, newline="")))
        touched = False
        for row in rows:
            path = Path(os.path.normpath(site / row[0])) if row else site
            if path in changed and len(row) == 3:  # noqa: PLR2004 - path, hash, size
                row[1:] = [_record_hash(changed[path]), str(len(changed[path]))]
                touched = True
        if touched:
            written = io.StringIO(newline="")
            csv.writer(written, lineterminator="\n").writerows(rows)
            write_atomically(record, written.getvalue())


def _record_hash(content: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def _compile(folder: Path, sources: list[Path]) -> None:
    """Compile patched sources anew: bytecode of the old ones would be written over at their first import."""
    for source in sources:
        for old in (source.parent / "__pycache__").glob(f"{source.stem}.*.pyc"):
            old.unlink()
    if sources:
        argv: list[str | Path] = [folder / "bin" / "python", *_COMPILE, *sources]
        process.run(argv, env=process.clean_environ())
