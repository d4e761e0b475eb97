"""The distributions of an environment: what each says of itself, read from its .dist-info. An edge.

importlib.metadata runs in our own process, on the environment's folders: nothing of the environment is imported.
"""

from __future__ import annotations

import base64
import csv
import json
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from verl_env.capture.listing import Listed, Vcs, clean_name, clean_version
from verl_env.urls import bare_url

if TYPE_CHECKING:
    from collections.abc import Iterator

    from verl_env.capture.layout import Layout


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """One line of a RECORD: `path` is absolute; `sha256` bare hex, "" when the RECORD has none; `size` in bytes."""

    path: Path
    sha256: str
    size: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """One distribution. `tags` are WHEEL's, `files` RECORD's lines, None without a RECORD.

    `origin` is what direct_url.json says: `editable`, `vcs`, `archive` or `directory`; `folder` the local one that it
    names. `broken` says what of its metadata cannot be read.
    """

    name: str
    version: str | None
    info: Path
    base: Path
    installer: str | None = None
    tags: tuple[str, ...] = ()
    pure: bool = False
    requires: tuple[str, ...] = ()
    files: tuple[Recorded, ...] | None = None
    origin: str | None = None
    url: str | None = None
    vcs: Vcs | None = None
    folder: Path | None = None
    sha256: str | None = None
    broken: tuple[str, ...] = field(default=())

    @property
    def listed(self) -> Listed:
        """The distribution as a line of a list."""
        contents = {self.relative(it.path): it.sha256 for it in self.files or () if it.sha256}
        return Listed(
            name=self.name,
            version=self.version,
            url=self.url,
            vcs=self.vcs,
            editable=self.origin == "editable",
            requires=self.requires,
            contents=contents,
        )

    def relative(self, path: Path) -> str:
        """Return a file's path from the folder of packages, as RECORD writes it."""
        try:
            return path.relative_to(self.base).as_posix()
        except ValueError:
            import os

            return Path(os.path.relpath(path, self.base)).as_posix()


def read_distributions(layout: Layout) -> tuple[tuple[Installed, ...], tuple[str, ...]]:
    """Return every distribution that Python would find, first found first, and what lies there broken."""
    found: dict[str, Installed] = {}
    faults: list[str] = []
    for folder in layout.folders:
        faults += [f"{it.name} is left over from an uninstall that broke off" for it in sorted(folder.glob("~*"))]
        here: dict[str, Installed] = {}
        for distribution in metadata.distributions(path=[str(folder)]):
            installed = _read(distribution, folder)
            if installed is None:
                faults.append(f"{_info(distribution).name} states no name or version")
            elif installed.name in here and installed.version == here[installed.name].version:
                continue  # a link or an .egg-info beside it
            elif installed.name in here:
                faults.append(
                    f"{installed.name} has two .dist-info: {installed.version} and {here[installed.name].version}"
                )
            else:
                here[installed.name] = installed
        for name, installed in here.items():
            if name in found:
                faults.append(f"{name} {installed.version} in {folder.name} is hidden by {found[name].version}")
            found.setdefault(name, installed)
    faults += [f"{it.name}: {fault}" for it in found.values() for fault in it.broken]
    return tuple(sorted(found.values(), key=lambda it: it.name)), tuple(faults)


def _info(distribution: metadata.Distribution) -> Path:
    """Return the .dist-info or .egg-info; importlib keeps it to itself."""
    return Path(getattr(distribution, "_path", "."))


def _read(distribution: metadata.Distribution, folder: Path) -> Installed | None:
    """Read one distribution; what cannot be read is said in `broken`."""
    info = _info(distribution)
    broken: list[str] = []
    said = distribution.metadata if _metadata_is_there(info) else None
    name = clean_name(str(said["Name"])) if said is not None and said["Name"] else None
    if name is None:
        return None
    version = clean_version(str(said["Version"])) if said is not None and said["Version"] else None
    if version is None:
        return None
    record = _text(info / "RECORD") if info.name.endswith(".dist-info") else None
    if record is None and info.name.endswith(".dist-info"):
        broken.append("its RECORD is missing: its files cannot be checked")
    wheel = _text(info / "WHEEL") or ""
    origin = _origin(_text(info / "direct_url.json"), broken)
    installer = _text(info / "INSTALLER")
    return Installed(
        name=name,
        version=version,
        info=info,
        base=folder,
        installer=installer.strip() if installer else None,
        tags=tuple(line.partition(":")[2].strip() for line in wheel.splitlines() if line.startswith("Tag:")),
        pure="root-is-purelib: true" in wheel.lower(),
        requires=tuple(str(it) for it in (said.get_all("Requires-Dist") or ())) if said is not None else (),
        files=tuple(_records(record, folder, broken)) if record is not None else None,
        broken=tuple(broken),
        **origin,
    )


def _metadata_is_there(info: Path) -> bool:
    return info.is_file() or any((info / it).is_file() for it in ("METADATA", "PKG-INFO"))


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return None


def _records(text: str, folder: Path, broken: list[str]) -> Iterator[Recorded]:
    """Yield RECORD's lines; one that is no path, hash and size is said once."""
    import os

    try:
        rows = list(csv.reader(text.splitlines()))
    except csv.Error as err:
        broken.append(f"its RECORD cannot be read: {err}")
        return
    for row in rows:
        if len(row) != 3 or not row[0] or "\x00" in row[0]:  # noqa: PLR2004 - path, hash, size
            if "its RECORD has lines that are none" not in broken:
                broken.append("its RECORD has lines that are none")
            continue
        path = Path(os.path.normpath(folder / row[0]))
        yield Recorded(path=path, sha256=_hex(row[1]), size=int(row[2]) if row[2].isdecimal() else None)


def _hex(text: str) -> str:
    """Turn RECORD's `sha256=<urlsafe base64 without padding>` into hex; "" for other hashes and none."""
    kind, _, value = text.partition("=")
    if kind != "sha256":
        return ""
    try:
        return base64.urlsafe_b64decode(value + "=" * (-len(value) % 4)).hex()
    except ValueError:
        return ""


def _origin(text: str | None, broken: list[str]) -> dict[str, Any]:
    """Read direct_url.json (PEP 610); URLs lose what could be a secret."""
    if text is None:
        return {}
    try:
        plain = json.loads(text)
        url = str(plain["url"])
    except (ValueError, KeyError, TypeError, RecursionError):
        broken.append("its direct_url.json cannot be read")
        return {}
    shown = bare_url(url) if not url.startswith("file:") else None
    folder = Path(unquote(urlsplit(url).path)) if url.startswith("file:") else None
    vcs, archive, directory = (_dict(plain.get(it)) for it in ("vcs_info", "archive_info", "dir_info"))
    if vcs:
        commit = str(vcs["commit_id"]) if vcs.get("commit_id") else None
        made = Vcs(
            kind=str(vcs.get("vcs", "git")),
            url=shown or "(a folder)",
            commit=commit,
            subdirectory=plain.get("subdirectory"),
        )
        return {"origin": "vcs", "url": shown, "vcs": made, "folder": folder}
    if "dir_info" in plain:
        return {"origin": "editable" if directory.get("editable") else "directory", "folder": folder}
    digest = _dict(archive.get("hashes")).get("sha256") or str(archive.get("hash", "")).removeprefix("sha256=")
    return {"origin": "archive", "url": shown, "folder": folder, "sha256": digest or None}


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
