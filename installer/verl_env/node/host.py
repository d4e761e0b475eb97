"""The machine as probes see it: a root folder, variables, patience; tests lay out another one."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from verl_env import process

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# For the shell: not executable, or not found.
_NOT_STARTED = 127


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """Where probes look: fixed paths (`/proc`, `/usr`) below `root`, those named in variables as they are.

    `patience` is how many seconds one child process may take: a driver library can hang for good.
    """

    root: Path = Path("/")
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    patience: float = 10.0

    @property
    def home(self) -> Path:
        """The user's folder, from HOME; the root when it is not set (containers started with another uid)."""
        return Path(self.environ.get("HOME") or self.root)

    def path(self, absolute: str) -> Path:
        """Return the place of a fixed path on this host."""
        return self.root / absolute.lstrip("/")

    def read(self, absolute: str) -> str | None:
        """Return a file's text, or None when it is not there or not readable."""
        try:
            return self.path(absolute).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None

    def glob(self, folder: str, pattern: str) -> tuple[Path, ...]:
        """Return what matches below a fixed folder, sorted; nothing when it is not there or not readable."""
        return list_matching(self.path(folder), pattern)

    def which(self, name: str) -> Path | None:
        """Return the first executable of that name along PATH."""
        found = shutil.which(name, path=self.environ.get("PATH", os.defpath))
        return Path(found) if found else None

    def run(self, argv: Sequence[str | Path], *, limit: float | None = None) -> process.Completed:
        """Run a program with this host's variables; one that cannot start ends as in a shell, with 127."""
        try:
            return process.run(argv, env=self.environ, timeout=min(limit or self.patience, self.patience))
        except OSError as err:
            words = tuple(os.fspath(word) for word in argv)
            said = err.strerror or str(err)
            return process.Completed(argv=words, returncode=_NOT_STARTED, stdout="", stderr=said, seconds=0)


def list_matching(folder: Path, pattern: str) -> tuple[Path, ...]:
    """Return what matches in a folder, sorted; nothing when it cannot be read."""
    try:
        return tuple(sorted(folder.glob(pattern)))
    except OSError:
        return ()
