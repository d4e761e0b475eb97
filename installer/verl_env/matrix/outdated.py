"""What upstream has released since a row was made, and what of it the row's own words allow. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from verl_env.matrix.rows import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """One package of a row's set against its index.

    `newer` are the releases after `have`, oldest first; `allowed` the newest that nothing holds back, None when
    there is none; `held_by` what holds back the newest of all; `unknown` why the index could not be asked.
    """

    package: str
    have: str
    source: str
    newer: tuple[str, ...] = ()
    allowed: str | None = None
    held_by: tuple[str, ...] = ()
    unknown: str | None = None

    @property
    def newest(self) -> str | None:
        """The newest release, or None when the row has it."""
        return self.newer[-1] if self.newer else None


def stand(
    row: Row, package: str, versions: Iterable[Version], requires: Mapping[str, Iterable[str]], source: str
) -> Standing:
    """Compare one package of the set with the releases that its index has.

    `requires` are the Requires-Dist of the set's other packages, named as `vllm 0.24.0`. Pre-releases do not count.
    """
    have = Version(row.set[package])
    same = sorted(it for it in versions if not it.is_prerelease and it.local in (None, have.local))
    newer = [it for it in same if Version(it.public) > Version(have.public)]
    held = {it: tuple(dict.fromkeys(_holding(row, package, it, requires))) for it in newer}
    free = [it for it in newer if not held[it]]
    return Standing(
        package=package,
        have=row.set[package],
        source=source,
        newer=tuple(str(it) for it in newer),
        allowed=str(free[-1]) if free else None,
        held_by=held[newer[-1]] if newer else (),
    )


def _holding(row: Row, package: str, version: Version, requires: Mapping[str, Iterable[str]]) -> Iterator[str]:
    """Yield each word of the row, and of its packages, that does not allow a version."""
    asked = row.resolve
    if asked is None:
        return
    for spec in (*asked.requirements, *(it.spec for it in asked.constraints), *(it.spec for it in asked.overrides)):
        if _forbids(spec, package, version):
            yield f"the row: {spec}"
    if package in {canonicalize_name(Requirement(it.spec).name) for it in asked.overrides}:
        return  # what packages need of it does not count
    extras: set[str] = {canonicalize_name(extra) for spec in asked.requirements for extra in Requirement(spec).extras}
    for owner, specs in requires.items():
        for spec in specs:
            if _applies(spec, extras) and _forbids(spec, package, version):
                yield f"{owner}: {spec.split(';')[0].strip()}"


def _forbids(spec: str, package: str, version: Version) -> bool:
    """Whether a requirement speaks of this package and does not allow this version."""
    requirement = Requirement(spec)
    return canonicalize_name(requirement.name) == package and not requirement.specifier.contains(version)


def _applies(spec: str, extras: set[str]) -> bool:
    """Whether a Requires-Dist counts on Linux with these extras."""
    marker = Requirement(spec).marker
    where = {"sys_platform": "linux", "platform_system": "Linux", "platform_machine": "x86_64"}
    return marker is None or any(marker.evaluate({**where, "extra": extra}) for extra in ("", *extras))
