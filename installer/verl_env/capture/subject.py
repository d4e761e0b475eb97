"""What a user names to be looked at: a row, a lockfile, a list or report, an environment. An edge."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from verl_env import paths
from verl_env.capture.environment import Environment, read_environment
from verl_env.capture.listing import Listed, Listing
from verl_env.capture.recognise import read_file
from verl_env.errors import NoEnvironmentError, UsageError
from verl_env.matrix.load import load_pins

if TYPE_CHECKING:
    from verl_env.matrix.matrix import Entry, Matrix
    from verl_env.matrix.pins import Pins


def read_subject(
    given: str, matrix: Matrix, *, verify: bool = False, like: Listing | None = None
) -> tuple[Listing, Environment | None]:
    """Read whatever `given` names; raises UsageError with what it could have been.

    `verify` hashes an environment's files; of a row, the variant for the Python and machine of `like` is taken.
    """
    if given in matrix.entries and not os.path.lexists(given):
        python, machine = (like.minor, like.machine) if like else (None, None)
        return row_listing(matrix.entries[given], python=python, machine=machine), None
    path = Path(given).expanduser()
    # A pipe is a list too: `verl-env check <(pip freeze)`.
    if given == "-" or (path.exists() and not path.is_dir() and not _is_python(path)):
        return read_file(path), None
    found = read_environment(environment_path(given), verify=verify)
    return found.listing(), found


def _is_python(path: Path) -> bool:
    return os.access(path, os.X_OK) and path.name.startswith(("python", "pypy")) and path.suffix != ".txt"


def environment_path(given: str) -> str:
    """Return the folder of an environment: a path, or the name of one of verl-env's."""
    if os.path.lexists(Path(given).expanduser()):
        return given
    from verl_env.environment.receipt import find_environment

    if given == "current" or "/" not in given:
        try:
            return str(find_environment(None if given == "current" else given)[0])
        except NoEnvironmentError as err:
            raise UsageError(
                f"`{given}` is no file, no row and no environment",
                details=err.details,
                hint=f"name a path, a row (verl-env matrix list), or an environment in {paths.environments().name}",
            ) from err
    raise UsageError(f"nothing is at `{given}`", hint="name a file, an environment or a row")


def row_listing(
    entry: Entry, pins: Pins | None = None, *, python: str | None = None, machine: str | None = None
) -> Listing:
    """Return a row as a list: its pins where it has any, for that Python and machine (default: this one)."""
    row = entry.row
    if pins is None and (header := entry.variant(python, machine or os.uname().machine)):
        pins = load_pins(entry, header)
    if pins is None:
        named = tuple(Listed(name=name, version=version) for name, version in sorted(row.set.items()))
        return Listing(kind="row", packages=named, complete=False, python=row.python[0], cuda=row.cuda, row=entry.id)
    packages = tuple(
        Listed(
            name=pin.name,
            version=row.set[pin.name] if _is_set(row.set.get(pin.name), pin.version) else pin.version,
            files=(pin.file,),
            hashes=(f"sha256:{pin.sha256}",),
            hashed=True,
            source=pin.source,
        )
        for pin in pins.pins
    )
    return Listing(
        kind="row",
        packages=packages,
        python=pins.header.python,
        cuda=row.cuda,
        machine=pins.header.arch,
        glibc=pins.header.glibc,
        row=entry.id,
    )


def _is_set(said: str | None, pinned: str) -> bool:
    """Whether the row's set names this pin with its build's label: `2.11.0+cu130` for `2.11.0`."""
    return said is not None and said.partition("+")[0] == pinned
