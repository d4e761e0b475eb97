"""A row's pins with a user's wishes on top: resolved by uv, the pins held still. An edge.

The pins go to uv as exact constraints, with the row's own constraints and overrides. What comes back is held against
the pins and against every wish, because an override makes uv accept a wish that it breaks.
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from packaging.utils import InvalidWheelFilename, canonicalize_name

from verl_env import uv
from verl_env.errors import ResolveError, UsageError
from verl_env.lock.doubt import refuse_doubtful
from verl_env.lock.locate import base_options, locate
from verl_env.lock.pin_files import pin_of_package
from verl_env.lock.wishes import Wish, applying, refuse_clashes, refuse_wrong_files, unmet, versions_of
from verl_env.matrix.pins import Pins, make_pins
from verl_env.matrix.rows import Resolve
from verl_env.matrix.tags import supported_tags

if TYPE_CHECKING:
    from verl_env.indexes import Indexes
    from verl_env.matrix.facts import Facts
    from verl_env.matrix.matrix import Entry

_NO_RESOLVE = Resolve(requirements=())
_EXACT = re.compile(r"(?<![\w.-])([a-z0-9][a-z0-9-]*)==([\w.+!]+)")
_NO_WHEELS = re.compile(r"all versions of ([\w.-]+) have no usable wheels")
_NO_WHEEL = re.compile(r"([\w-]+)==[\w.+!]+ has no usable wheels")  # of the only version that suits


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is asked for beyond the row: wishes, the pins that may move, and a day after which nothing is taken."""

    wishes: tuple[Wish, ...] = ()
    upgrade: tuple[Wish, ...] = ()
    exclude_newer: dt.date | None = None


def extend(entry: Entry, base: Pins, wanted: Wanted, indexes: Indexes, facts: Facts) -> Pins:
    """Return the row's pins with what the wishes bring; raises ResolveError naming the pin and the wish that clash."""
    head = base.header
    wishes = applying(wanted.wishes, head.python, head.arch)
    _check_upgrades(entry, base, wanted.upgrade)
    free = {it.name for it in wanted.upgrade}
    names = {pin.name: pin.version for pin in base.pins}
    spelled = versions_of(base.pins, entry.row.set)
    refuse_clashes(tuple(it for it in unmet(wishes, spelled) if it.found and it.wish.name not in free), entry.id, names)
    if not free and _there_already(wishes, spelled):
        refuse_wrong_files(wishes, base.pins)
        return base
    packages = _compile(entry, base, replace(wanted, wishes=wishes), indexes, facts)
    result = _merged(entry, base, packages, free, indexes)
    refuse_clashes(unmet((*wishes, *wanted.upgrade), versions_of(result.pins, entry.row.set)), entry.id, names)
    refuse_wrong_files(wishes, result.pins)
    refuse_doubtful(base, result, indexes)
    return result


def _there_already(wishes: tuple[Wish, ...], versions: dict[str, tuple[str, ...]]) -> bool:
    """Whether the row's own packages meet every wish; an extra may bring others, so it is uv's to say."""
    return all(not it.requirement.extras and (it.constraint or it.name in versions) for it in wishes)


def _check_upgrades(entry: Entry, base: Pins, upgrade: tuple[Wish, ...]) -> None:
    """Refuse to let go of what is not pinned, and of what the row overrides: it would not move."""
    names = {pin.name for pin in base.pins}
    overridden = {canonicalize_name(it.spec_name): it for it in _overrides(entry)}
    for wish in upgrade:
        if wish.name not in names:
            raise UsageError(f"row {entry.id} has no `{wish.name}` to upgrade", hint=f"to add it: --with {wish.name}")
        if held := overridden.get(canonicalize_name(wish.name)):
            raise ResolveError(
                f"row {entry.id} overrides `{wish.name}` to `{held.spec}`, so it cannot be moved",
                details=(held.why,),
                hint="choose another row, or copy this one into a matrix of your own (--matrix)",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Override:
    spec_name: str
    spec: str
    why: str


def _overrides(entry: Entry) -> tuple[_Override, ...]:
    from packaging.requirements import Requirement

    asked = entry.row.resolve or _NO_RESOLVE
    return tuple(_Override(spec_name=Requirement(it.spec).name, spec=it.spec, why=it.why) for it in asked.overrides)


def _compile(entry: Entry, base: Pins, wanted: Wanted, indexes: Indexes, facts: Facts) -> list[dict[str, Any]]:
    """Ask uv for what the wishes bring, everything but `wanted.upgrade` held where it is."""
    asked, head = entry.row.resolve or _NO_RESOLVE, base.header
    free = {it.name for it in wanted.upgrade}
    held = [f"{pin.name}=={pin.version}" for pin in base.pins if pin.name not in free]
    asking = [it.text for it in (*wanted.wishes, *wanted.upgrade) if not it.constraint]
    # A package that moves must suit those that stay, and they say so only when they are asked for too.
    asking += held if free else []
    narrowing = [it.text for it in wanted.wishes if it.constraint] + [it.spec for it in asked.constraints]
    words = ["--python-version", head.python, "--python-platform", _platform(asked, base)]
    words += ["--constraint", "constraints.txt", "--override", "overrides.txt", "--only-binary", ":all:"]
    # Wheels only, and no pre-release that nobody asked for: uv would walk back to one when newer releases are sdists.
    words += ["--prerelease", "explicit"]
    words += [word for pin in base.pins if pin.is_sdist for word in ("--no-binary", pin.name)]
    words += ["--exclude-newer", wanted.exclude_newer.isoformat()] if wanted.exclude_newer else []
    files = {
        "constraints.txt": "\n".join([*held, *narrowing, ""]),
        "overrides.txt": "\n".join([*(it.spec for it in asked.overrides), ""]),
        "uv.toml": _settings(base, free, dated=wanted.exclude_newer is not None),
    }
    options = _index_options(base, indexes, facts)
    try:
        document = uv.compile_pylock("\n".join([*asking, ""]), [*words, "--config-file", "uv.toml", *options], files)
    except ResolveError as err:
        raise _explained(err, entry, base, wanted) from err
    packages: list[dict[str, Any]] = document["packages"]
    return packages


def _platform(asked: Resolve, base: Pins) -> str:
    return f"{base.header.arch}-manylinux_{_glibc(asked, base).replace('.', '_')}"


def _glibc(asked: Resolve, base: Pins) -> str:
    """Return the highest glibc that wheels may ask for: the row's ceiling, or what its pins need already."""
    return asked.glibc if asked is not _NO_RESOLVE else base.header.glibc or asked.glibc


def _settings(base: Pins, free: set[str], *, dated: bool) -> str:
    """Write uv's settings: pinned sdists are not built to be looked into, pinned files are not too new."""
    lines = []
    if dated:
        exempt = ", ".join(f'"{pin.name}" = false' for pin in base.pins if pin.name not in free)
        lines.append(f"exclude-newer-package = {{ {exempt} }}")
    for pin in base.pins:
        if pin.is_sdist:
            lines += [
                "[[dependency-metadata]]",
                f'name = "{pin.name}"',
                f'version = "{pin.version}"',
                "requires-dist = []",
            ]
    return "\n".join([*lines, ""])


def _index_options(base: Pins, indexes: Indexes, facts: Facts) -> tuple[str, ...]:
    """Return uv's options for the indexes in use, and for those that serve the row's own files."""
    special = tuple(pin for pin in base.pins if pin.source != "default")
    if not special:
        return base_options(indexes)
    located = locate(special, base.header.python, indexes, facts)
    policy = base_options(replace(indexes, extra=(), find_links=()))
    own = located.options[: len(located.options) - len(policy)]
    return (*own, *base_options(indexes))


def _explained(err: ResolveError, entry: Entry, base: Pins, wanted: Wanted) -> ResolveError:
    """Say which pins uv's refusal is about, and what lets them go."""
    pinned = {pin.name: pin.version for pin in base.pins}
    said = "\n".join(err.details)
    involved = [name for name, version in dict.fromkeys(_EXACT.findall(said)) if pinned.get(name) == version]
    asked = ", ".join(f"`{it.text}` ({it.origin})" for it in (*wanted.wishes, *wanted.upgrade) if not it.constraint)
    named = tuple(f"pin: {name} {pinned[name]} (row {entry.id})" for name in involved)
    upgrade = " ".join(f"--upgrade-package {name}" for name in involved if name in pinned)
    return ResolveError(
        f"no set of packages has {asked} on top of the pins of {entry.id}",
        details=(*named, *err.details),
        hint=f"ask for another version, or let the pin go, unproved: {upgrade}" if named else _hint(said, err.hint),
    )


def _hint(said: str, other: str) -> str:
    """Say what to do about packages that are published as source only."""
    names = ", ".join(dict.fromkeys(_NO_WHEELS.findall(said) or _NO_WHEEL.findall(said)))
    if not names:
        return other
    return f"{names}: only source is published; build a wheel of it once, and name its folder: UV_FIND_LINKS=FOLDER"


def _merged(entry: Entry, base: Pins, packages: list[dict[str, Any]], free: set[str], indexes: Indexes) -> Pins:
    """Put what uv found beside the pins; refuse a result that moved one."""
    asked, head = entry.row.resolve or _NO_RESOLVE, base.header
    tags = supported_tags(head.python, head.arch, _glibc(asked, base))
    kept = {pin.name: pin for pin in base.pins}
    for package in packages:
        name, version = package["name"], package["version"]
        if name in kept and kept[name].version == version:
            continue
        if name in kept and name not in free:
            raise ResolveError(
                f"uv moved `{name}` from {kept[name].version} to {version}, and pins do not move",
                hint=f"an override of row {entry.id} says so; choose another row",
            )
        try:
            kept[name] = pin_of_package(package, tags, indexes)
        except InvalidWheelFilename as err:
            raise ResolveError(f"{name} {version}: {err}", hint="ask whoever keeps this index") from err
    return make_pins(entry.id, head.python, head.arch, pins=tuple(kept.values()), build=base.build, made=head.made)
