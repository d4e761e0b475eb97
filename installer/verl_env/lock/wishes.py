"""What a user asks for on top of a row's pins, and whether a set of versions meets it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from verl_env.errors import ResolveError, UsageError
from verl_env.urls import shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from verl_env.matrix.pins import Pin


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """One requirement (PEP 508) as it was asked for; `origin` is `--with`, or the file and line.

    `hashes` are `sha256:…`, any of which its file may have. A `constraint` only narrows what others bring.
    """

    text: str
    origin: str
    hashes: tuple[str, ...] = ()
    constraint: bool = False

    @property
    def requirement(self) -> Requirement:
        """The requirement, parsed."""
        return Requirement(self.text)

    @property
    def name(self) -> str:
        """The normalised name (PEP 503) of the package."""
        return str(canonicalize_name(self.requirement.name))

    @property
    def line(self) -> str:
        """The wish as one line of a requirements file, in one spelling."""
        return " ".join(["-c", *self._words] if self.constraint else self._words)

    @property
    def _words(self) -> list[str]:
        return [self.text, *(f"--hash={it}" for it in self.hashes)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unmet:
    """A wish that a set of pins does not meet; `found` is the version that is there, or None."""

    wish: Wish
    found: str | None

    def __str__(self) -> str:
        has = f"{self.wish.name} is {self.found}" if self.found else f"{self.wish.name} is not among the packages"
        return f"`{self.wish.text}` ({self.wish.origin}): {has}"


def parse_wish(text: str, origin: str, *, hashes: tuple[str, ...] = (), constraint: bool = False) -> Wish:
    """Read one requirement; raises UsageError for what is none, and for a URL: a pin is said by its hash alone."""
    try:
        requirement = Requirement(text)
    except InvalidRequirement as err:
        what = shown(str(err).splitlines()[0])
        raise UsageError(
            f"{origin}: `{shown(text)}` is not a requirement: {what}", hint="write it as in: peft>=0.13"
        ) from err
    if requirement.url:
        raise UsageError(
            f"{origin}: `{requirement.name}` is asked for by URL, and a lock holds files that any index can serve",
            hint="name its version; for a folder of wheels set UV_FIND_LINKS, for a checkout of verl use --editable",
        )
    # Sorted, so that the order of specifiers and extras is not a difference.
    return Wish(text=str(requirement), origin=origin, hashes=tuple(sorted(hashes)), constraint=constraint)


def target_markers(python: str, arch: str) -> dict[str, str]:
    """Return the environment (PEP 508) that markers are evaluated in: the lock's, never this machine's."""
    return {
        "extra": "",
        "implementation_name": "cpython",
        "implementation_version": f"{python}.0",
        "os_name": "posix",
        "platform_machine": arch,
        "platform_python_implementation": "CPython",
        "platform_release": "",
        "platform_system": "Linux",
        "platform_version": "",
        "python_full_version": f"{python}.0",
        "python_version": python,
        "sys_platform": "linux",
    }


def applying(wishes: Iterable[Wish], python: str, arch: str) -> tuple[Wish, ...]:
    """Return the wishes whose marker holds where the lock will be installed."""
    markers = target_markers(python, arch)
    return tuple(it for it in wishes if it.requirement.marker is None or it.requirement.marker.evaluate(markers))


def unmet(wishes: Iterable[Wish], versions: Mapping[str, tuple[str, ...]]) -> tuple[Unmet, ...]:
    """Hold wishes against versions: name to every spelling of its version; only those wishes that apply here.

    A package that is absent is unmet, unless the wish only constrains.
    """
    found: list[Unmet] = []
    for wish in wishes:
        has = versions.get(wish.name)
        if has is None:
            if not wish.constraint:
                found.append(Unmet(wish=wish, found=None))
        elif not any(wish.requirement.specifier.contains(it, prereleases=True) for it in has):
            found.append(Unmet(wish=wish, found=has[0]))
    return tuple(found)


def refuse_clashes(clashes: tuple[Unmet, ...], row: str, names: Mapping[str, str]) -> None:
    """Raise ResolveError naming each pin and the wish it stands against; `names` are the row's pins by name."""
    if not clashes:
        return
    lines = tuple(
        f"{it}{f', which row {row} pins' if names.get(it.wish.name) == it.found and it.found else ''}" for it in clashes
    )
    movable = dict.fromkeys(it.wish.name for it in clashes if it.wish.name in names)
    upgrade = " ".join(f"--upgrade-package {name}" for name in movable)
    raise ResolveError(
        f"{len(clashes)} of the wishes cannot be met: pins do not move",
        details=lines,
        hint=f"drop the wish, choose another row, or let the pin go, unproved: {upgrade}"
        if upgrade
        else "drop the wish",
    )


def versions_of(pins: tuple[Pin, ...], said_by_row: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return each package's version, and the row's spelling of it (`2.11.0+cu130` for the default index's 2.11.0)."""
    found: dict[str, tuple[str, ...]] = {}
    for pin in pins:
        said = said_by_row.get(pin.name, pin.version)
        found[pin.name] = (pin.version, said) if said.split("+")[0] == pin.version else (pin.version,)
    return found


def refuse_wrong_files(wishes: tuple[Wish, ...], pins: tuple[Pin, ...]) -> None:
    """Refuse when a wish names hashes and the file that was pinned has none of them."""
    by_name = {pin.name: pin for pin in pins}
    for wish in wishes:
        pin = by_name.get(wish.name)
        if wish.hashes and pin and f"sha256:{pin.sha256}" not in wish.hashes:
            raise ResolveError(
                f"`{wish.text}` ({wish.origin}) names {len(wish.hashes)} hashes, and `{pin.file}` has none of them",
                details=(f"its sha256 is {pin.sha256}",),
                hint="name the hash of the wheel for this Python and platform",
            )
