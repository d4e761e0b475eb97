"""`verl-env build PACKAGE --wheel FILE|URL --sha256 HEX`: take a wheel that somebody else compiled, looked at first."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from verl_env import __version__, fetch
from verl_env.builds import wheel as wheels
from verl_env.builds.adopting import refusals
from verl_env.builds.failing import BuildError
from verl_env.builds.gather import WrongFileError
from verl_env.builds.inputs import adopted_key
from verl_env.builds.looking import refuse_unloadable, unpacked
from verl_env.builds.record import ADOPTED, SCHEMA, Record
from verl_env.builds.wheelhouse import checked, find, store
from verl_env.commands.build_subject import ALL, capabilities_here
from verl_env.environment.receipt import now
from verl_env.errors import UsageError
from verl_env.files import writing_atomically
from verl_env.lock.locate import clean_url
from verl_env.node.system import read_glibc
from verl_env.output import Result
from verl_env.records import to_plain

if TYPE_CHECKING:
    import argparse

    from verl_env.builds.looking import Looked
    from verl_env.commands.build_subject import Subject

_SHA256 = 64  # hex digits


def adopt(args: argparse.Namespace, subject: Subject) -> Result:
    """Fetch it, compare its hash, hold it against the row and this node, load it, and store it."""
    sha256 = args.sha256.lower().removeprefix("sha256:")
    if len(sha256) != _SHA256 or set(sha256) - set("0123456789abcdef"):
        raise UsageError(f"`{args.sha256}` is no sha256", hint="write its 64 hex digits")
    key = adopted_key(sha256, subject.target)
    if there := find(key):
        record, changed = checked(there).record, False
    else:
        with tempfile.TemporaryDirectory(prefix="verl-env-") as name:
            wheel, folder = _brought(args.wheel, sha256, Path(name), subject), Path(name) / "unpacked"
            looked = unpacked(wheel, folder)
            _refuse_unsuitable(args, wheel, looked, subject)
            refuse_unloadable(wheel, folder, subject.build.package, subject.build.imports, subject.where)
            record = _record(wheel, sha256, key, clean_url(args.wheel), looked, subject)
            changed = not args.dry_run
            if changed:
                store(record, wheel)
    verb = "is adopted" if changed else "suits this row" if args.dry_run else "is there already"
    lines = [f"{record.package} {record.version} {verb}: {record.file}", f"sha256 {record.sha256}"]
    lines.append(f"install it: verl-env install --row {subject.entry.id}")
    return Result(data={"record": to_plain(record), "changed": changed}, text="\n".join(lines))


def _brought(given: str, sha256: str, folder: Path, subject: Subject) -> Path:
    """Copy or fetch the wheel; raises WrongFileError when its hash is another than the one that was named."""
    url = given if "://" in given else Path(given).expanduser().absolute().as_uri()
    file = unquote(urlsplit(url).path.rsplit("/", 1)[-1])
    wheels.name_of(file)
    digest = hashlib.sha256()
    with writing_atomically(folder / file) as stream:
        try:
            for block in fetch.open_door(subject.indexes).stream(url):
                digest.update(block)
                stream.write(block)
        except FileNotFoundError as err:
            raise UsageError(f"no file at `{given}`", hint="name a wheel, or its URL") from err
    if digest.hexdigest() != sha256:
        raise WrongFileError(
            f"`{file}` is another file than the one whose hash was named",
            details=(f"named sha256 {sha256}", f"found sha256 {digest.hexdigest()}"),
            hint="do not use it; ask its publisher",
        )
    return folder / file


def _refuse_unsuitable(args: argparse.Namespace, wheel: Path, looked: Looked, subject: Subject) -> None:
    """Raise BuildError with everything that speaks against it."""
    asked = subject.build.architectures if ALL in args.capabilities else tuple(args.capabilities)
    glibc = read_glibc()
    found = refusals(
        wheels.name_of(wheel.name),
        looked,
        subject.build,
        subject.target,
        capabilities=asked or capabilities_here(),
        glibc=glibc.value if glibc else None,
    )
    if found:
        raise BuildError(
            f"`{wheel.name}` does not suit row {subject.entry.id}",
            details=found,
            hint=f"compile one: verl-env build {subject.build.package} --row {subject.entry.id}",
        )


def _record(wheel: Path, sha256: str, key: str, origin: str, looked: Looked, subject: Subject) -> Record:
    return Record(
        schema=SCHEMA,
        kind=ADOPTED,
        key=key,
        package=subject.build.package,
        version=wheels.name_of(wheel.name).version,
        file=wheel.name,
        size=wheel.stat().st_size,
        sha256=sha256,
        target=subject.target,
        architectures=looked.architectures,
        glibc=looked.glibc,
        made=now(),
        by=f"verl-env {__version__}",
        origin=origin,
    )
