"""What an index has of a package: read from its page, whichever form it has. Pure."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import TYPE_CHECKING
from urllib.parse import unquote, urldefrag, urljoin

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from packaging.version import Version


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedFile:
    """One file of a page. `size` is in bytes, None where the page does not say; `uploaded` an ISO time or None."""

    name: str
    url: str
    size: int | None = None
    requires_python: str | None = None
    yanked: bool = False
    uploaded: str | None = None
    metadata: bool = False

    @property
    def version(self) -> Version | None:
        """The version in the file's name, or None for a name that is no release's."""
        try:
            if self.name.endswith(".whl"):
                return parse_wheel_filename(self.name)[1]
            return parse_sdist_filename(self.name)[1]
        except (InvalidWheelFilename, InvalidSdistFilename):
            return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """What a release says of itself (core metadata): the Pythons it is for and the packages it needs."""

    name: str
    version: str
    requires_python: str | None = None
    requires: tuple[str, ...] = ()
    file: str = ""


def parse_page(text: str, kind: str, url: str) -> tuple[ListedFile, ...]:
    """Read a package's page: the JSON of PEP 691 and 700, or the HTML of PEP 503 and 592."""
    return _from_json(text, url) if kind.endswith("+json") or kind == "application/json" else _from_html(text, url)


def releases(
    files: Iterable[ListedFile], package: str, python: str | None = None
) -> dict[Version, tuple[ListedFile, ...]]:
    """Return the releases that are not yanked, and that say they run on `python`, with their files."""
    found: dict[Version, tuple[ListedFile, ...]] = {}
    start = canonicalize_name(package) + "-"
    for file in files:
        ours = canonicalize_name(file.name).startswith(start)
        if ours and file.version and not file.yanked and _runs_on(file.requires_python, python):
            found[file.version] = (*found.get(file.version, ()), file)
    return found


def _runs_on(requires: str | None, python: str | None) -> bool:
    if requires is None or python is None:
        return True
    try:
        return SpecifierSet(requires).contains(f"{python}.0")
    except InvalidSpecifier:
        return True


def _from_json(text: str, url: str) -> tuple[ListedFile, ...]:
    return tuple(
        ListedFile(
            name=it["filename"],
            url=urljoin(url, it["url"]),
            size=it.get("size"),
            requires_python=it.get("requires-python"),
            yanked=bool(it.get("yanked")),
            uploaded=it.get("upload-time"),
            metadata=bool(it.get("core-metadata") or it.get("dist-info-metadata")),
        )
        for it in json.loads(text).get("files", [])
    )


def _from_html(text: str, url: str) -> tuple[ListedFile, ...]:
    reader = _Links()
    reader.feed(text)
    found = []
    for attributes in reader.links:
        place = urldefrag(urljoin(url, attributes.get("href") or "")).url
        found.append(
            ListedFile(
                name=unquote(re.sub(r"[?].*", "", place).rsplit("/", 1)[-1]),
                url=place,
                requires_python=attributes.get("data-requires-python"),
                yanked="data-yanked" in attributes,
                metadata="data-core-metadata" in attributes or "data-dist-info-metadata" in attributes,
            )
        )
    return tuple(found)


class _Links(HTMLParser):
    """The attributes of every link of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[dict[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep the links."""
        if tag == "a":
            self.links.append(dict(attrs))
