"""Asking indexes what upstream has released, and packages what they need. An edge, for maintainers."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass, field
from email.parser import HeaderParser
from typing import TYPE_CHECKING

from packaging.version import Version

from verl_env import fetch, uv
from verl_env.matrix.releases import ListedFile, Metadata, parse_page, releases
from verl_env.matrix.wheel_records import read_member

if TYPE_CHECKING:
    from verl_env.indexes import Indexes
    from verl_env.matrix.facts import Facts


@dataclass(slots=True, kw_only=True)
class Upstream:
    """The indexes of a matrix's sources; each page, and what each release says of itself, is asked for once."""

    indexes: Indexes
    facts: Facts
    door: fetch.Door
    default: str | None = None
    pages: dict[tuple[str, str], tuple[ListedFile, ...]] = field(default_factory=dict)
    said: dict[tuple[str, str, str], Metadata | None] = field(default_factory=dict)
    out_of_reach: dict[tuple[str, str], fetch.FetchError] = field(default_factory=dict)

    def releases(
        self, package: str, source: str = "default", python: str | None = None, version: str = ""
    ) -> dict[Version, tuple[ListedFile, ...]]:
        """Return a package's releases on the index of a source; raises FetchError."""
        return releases(self.files(package, source, version), package, python)

    def files(self, package: str, source: str = "default", version: str = "") -> tuple[ListedFile, ...]:
        """Return every file that the index of a source lists for a package."""
        place, flat = self.place(source, version)
        key = (place, "" if flat else package)
        if key in self.out_of_reach:
            raise self.out_of_reach[key]
        if key not in self.pages:
            url = place if flat else f"{place.rstrip('/')}/{package}/"
            try:
                page = self.door.page(url)
            except fetch.FetchError as err:
                self.out_of_reach[key] = err
                raise
            self.pages[key] = parse_page(page.text, page.kind, page.url)
        return self.pages[key]

    def place(self, source: str, version: str = "") -> tuple[str, bool]:
        """Return a source's address, and whether it is a flat page; raises FetchError when it has none."""
        if chosen := self.indexes.by_source.get(source):
            return chosen, False
        if source == "default":
            self.default = self.default or self.indexes.default or uv.default_index()
            return self.default, False
        known = self.facts.source(source)
        if known is None or known.url is None:
            raise fetch.FetchError(f"source `{source}` has no address", hint=f"VERL_ENV_INDEX_{_variable(source)}=URL")
        return known.url.replace("{version}", Version(version or "0").public), known.links

    def metadata(self, package: str, version: str, source: str = "default") -> Metadata | None:
        """Return what a release says of itself, from one of its wheels; None when it has none there."""
        key = (package, version, source)
        if key not in self.said:
            self.said[key] = self._metadata(package, version, source)
        return self.said[key]

    def _metadata(self, package: str, version: str, source: str) -> Metadata | None:
        found = self.releases(package, source, version=version).get(Version(version), ())
        wheels = sorted((it for it in found if it.name.endswith(".whl")), key=lambda it: (_rank(it.name), it.name))
        for wheel in wheels:
            try:
                text = self._metadata_text(wheel)
            except (fetch.NotFoundError, zipfile.BadZipFile):
                continue
            said = HeaderParser().parsestr(text)
            return Metadata(
                name=package,
                version=version,
                requires_python=said["Requires-Python"],
                requires=tuple(said.get_all("Requires-Dist") or ()),
                file=wheel.name,
            )
        return None

    def _metadata_text(self, wheel: ListedFile) -> str:
        """Return a wheel's METADATA: beside it where the index offers that (PEP 658), else out of it."""
        if wheel.metadata:
            return self.door.page(f"{wheel.url}.metadata").text
        size = wheel.size or self.door.length(wheel.url)
        if size is None:
            raise fetch.NotFoundError(f"the size of `{wheel.name}` is not known")
        return read_member(self.door, wheel.url, size, "METADATA")


def open_upstream(indexes: Indexes, facts: Facts) -> Upstream:
    """Return the sources of a matrix as this machine reaches them."""
    return Upstream(indexes=indexes, facts=facts, door=fetch.open_door(indexes))


def _rank(wheel: str) -> int:
    """Prefer Linux on x86_64, then what runs anywhere: platforms may need different packages."""
    return 0 if "x86_64" in wheel and "linux" in wheel else 1 if wheel.endswith("-any.whl") else 2


def _variable(source: str) -> str:
    return source.upper().replace("-", "_")
