"""The local wheelhouse: `<key>/` with one wheel and its build record, complete as soon as it has its name. An edge."""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

from verl_env import output, paths
from verl_env.builds.failing import BuildError
from verl_env.builds.gather import sha256_of
from verl_env.builds.record import Record, parse_record, render_record
from verl_env.files import write_atomically

if TYPE_CHECKING:
    from pathlib import Path

RECORD = "record.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A wheel of the wheelhouse."""

    folder: Path
    record: Record

    @property
    def wheel(self) -> Path:
        """The file."""
        return self.folder / self.record.file


def stored() -> tuple[Stored, ...]:
    """Return every wheel that is there, newest first; what cannot be read is said and passed over."""
    there = paths.wheelhouse()
    names = sorted(it.name for it in there.iterdir() if not it.name.startswith(".")) if there.is_dir() else []
    found = [one for name in names if (one := find(name))]
    return tuple(sorted(found, key=lambda it: (it.record.made, it.record.key), reverse=True))


def find(key: str) -> Stored | None:
    """Return the wheel with this key; None when it is not there, or no record of it can be read."""
    folder = paths.wheelhouse() / key
    try:
        record = parse_record((folder / RECORD).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as err:
        output.warn(f"`{folder}` is passed over: its {RECORD} cannot be read ({err})")
        return None
    return Stored(folder=folder, record=record)


def checked(one: Stored) -> Stored:
    """Return it when its wheel is the very file that was stored; raises BuildError."""
    try:
        found = sha256_of(one.wheel)
    except OSError as err:
        raise BuildError(f"`{one.wheel}` cannot be read: {err.strerror}", hint=_again(one)) from err
    if found != one.record.sha256:
        raise BuildError(
            f"`{one.wheel}` was changed after it was stored",
            details=(f"its record says sha256 {one.record.sha256}", f"the file has      {found}"),
            hint=_again(one),
        )
    return one


def store(record: Record, wheel: Path) -> Stored:
    """Put a wheel and its record into the wheelhouse, by one rename; what is there under its key stays."""
    there = paths.wheelhouse()
    there.mkdir(parents=True, exist_ok=True)
    part = tempfile.mkdtemp(prefix=f".{record.key}.", dir=there)
    try:
        place = there / os.path.basename(part)
        shutil.copyfile(wheel, place / record.file)
        write_atomically(place / RECORD, render_record(record))
        place.chmod(0o755)
        try:
            os.rename(place, there / record.key)
        except OSError:
            if not (there / record.key / RECORD).is_file():  # else another node that shares it was quicker
                raise
    finally:
        shutil.rmtree(part, ignore_errors=True)
    one = find(record.key)
    if one is None:
        raise BuildError(f"`{there / record.key}` cannot be read back")
    return one


def _again(one: Stored) -> str:
    return f"remove `{one.folder}` and build it again: verl-env build {one.record.package}"
