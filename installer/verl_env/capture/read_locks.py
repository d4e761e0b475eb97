"""Reading lockfiles of any tool: PEP 751 documents and uv.lock. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from packaging.markers import InvalidMarker, Marker, UndefinedEnvironmentName
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from verl_env import toml
from verl_env.capture.listing import Listed, Listing, Vcs, clean_name, clean_version, merged
from verl_env.errors import LockError
from verl_env.lock.wishes import target_markers
from verl_env.urls import bare_url

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_PYTHONS = ("3.12", "3.11", "3.10", "3.13", "3.14")


def parse_toml(text: str, where: str) -> dict[str, Any]:
    """Parse a lockfile's TOML; raises LockError."""
    try:
        return toml.loads(text)
    except toml.TOMLDecodeError as err:
        raise LockError(f"`{where}` is not a whole TOML file: {err}", hint="name a whole lockfile") from err
    except RecursionError as err:
        raise LockError(f"`{where}` is nested too deeply for a lockfile", hint="name a whole lockfile") from err


def read_pylock(text: str, where: str, *, machine: str = "x86_64") -> Listing:
    """Read a PEP 751 lockfile of any tool; raises LockError for what packaging does not take for one."""
    from packaging.pylock import Pylock, PylockValidationError

    plain = parse_toml(text, where)
    unhashed = _take_out_unhashed(plain)
    try:
        Pylock.from_dict(plain)
    except (PylockValidationError, ValueError, TypeError, AttributeError) as err:
        raise LockError(f"`{where}` is not a PEP 751 lockfile: {err}", hint="name a whole lockfile") from err
    tool = plain.get("tool", {})
    ours = tool.get("verl-env") if isinstance(tool, dict) else None
    ours = ours if isinstance(ours, dict) else {}
    python = _text(ours.get("python")) or _minor_of(plain.get("requires-python"))
    packages = [
        _of_pylock(it, unhashed)
        for it in plain["packages"]
        if _applies([it["marker"]] if "marker" in it else [], python, machine)
    ]
    captured = _table(ours.get("captured"))
    packages += _beyond_pins(ours, captured)
    return Listing(
        kind="PEP 751 lockfile",
        packages=tuple(merged(packages)),
        python=python,
        cuda=_text(ours.get("cuda")),
        machine=_text(ours.get("arch")),
        row=None if captured else _text(ours.get("row")),
        patched=tuple(str(_table(it).get("path")) for it in _list(captured.get("patched"))),
        allow=tuple(it for it in ours.get("allow", ()) if isinstance(it, str)),
    )


def _beyond_pins(ours: Mapping[str, Any], captured: Mapping[str, Any]) -> Iterator[Listed]:
    """Yield what a lock of verl-env's installs from repositories and checkouts: PEP 751 has no room for both."""
    for it in map(_table, _list(captured.get("git"))):
        if name := clean_name(str(it.get("name"))):
            vcs = _vcs_of({"url": it.get("url"), "commit-id": it.get("commit"), "subdirectory": it.get("subdirectory")})
            yield Listed(name=name, version=clean_version(str(it.get("version", ""))), vcs=vcs, url=vcs.url)
    editable = _table(ours.get("editable"))
    if editable and (name := clean_name(str(editable.get("name")))):
        checkout = _vcs_of({"url": editable.get("remote"), "commit-id": editable.get("commit")})
        version = clean_version(str(editable.get("version", "")))
        yield Listed(name=name, version=version, vcs=checkout if checkout.commit else None, editable=True)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _take_out_unhashed(plain: dict[str, Any]) -> set[str]:
    """Note files without a hash, and give them one that says so: they are a finding, not a malformed file."""
    missing: set[str] = set()
    packages = plain.get("packages")
    for package in packages if isinstance(packages, list) else ():
        if not isinstance(package, dict):
            continue
        wheels = package.get("wheels")
        for file in (*(wheels if isinstance(wheels, list) else ()), package.get("sdist"), package.get("archive")):
            if isinstance(file, dict) and not file.get("hashes"):
                file["hashes"] = {"none": "none"}
                missing.add(str(package.get("name")))
    return missing


def _of_pylock(package: Mapping[str, Any], unhashed: set[str]) -> Listed:
    files = [*package.get("wheels", ()), *([package["sdist"]] if "sdist" in package else [])]
    if "archive" in package:
        files.append(package["archive"])
    names = tuple(str(it.get("name") or _file_name(it.get("url") or it.get("path") or "")) for it in files)
    digests = tuple(f"sha256:{it['hashes']['sha256']}" for it in files if "sha256" in it["hashes"])
    vcs, directory = package.get("vcs"), package.get("directory")
    index = package.get("index")
    return Listed(
        name=str(canonicalize_name(package["name"])),
        version=clean_version(str(package.get("version", ""))),
        files=names,
        hashes=digests,
        hashed=(package["name"] not in unhashed and bool(digests)) if files else False if directory else None,
        index=bare_url(index) if isinstance(index, str) else None,
        vcs=_vcs_of(vcs) if vcs else None,
        editable=bool(directory and directory.get("editable")),
    )


def _vcs_of(vcs: Mapping[str, Any]) -> Vcs:
    url = str(vcs.get("url") or "")
    commit = _text(vcs.get("commit-id"))
    inside = _text(vcs.get("subdirectory"))
    return Vcs(kind=str(vcs.get("type", "git")), url=bare_url(url), commit=commit, subdirectory=inside)


def _file_name(place: str) -> str:
    return unquote(urlsplit(place).path.rsplit("/", 1)[-1])


def _minor_of(spec: object) -> str | None:
    """Return the Python minor that a lock is for: the newest that verl runs on and `requires-python` admits."""
    if not isinstance(spec, str):
        return None
    try:
        admitted = SpecifierSet(spec)
    except InvalidSpecifier:
        return None
    return next((it for it in _PYTHONS if admitted.contains(f"{it}.99") or admitted.contains(it)), None)


def _applies(markers: Iterable[object], python: str | None, machine: str) -> bool:
    """Whether any of these markers holds on a Linux with this Python; none at all always applies."""
    said = [it for it in markers if isinstance(it, str)]
    if not said:
        return True
    environment = target_markers(python or _PYTHONS[0], machine)
    return any(_holds(text, environment) for text in said)


def _holds(text: str, environment: dict[str, str]) -> bool:
    """Evaluate a marker; one that is not understood takes nothing away."""
    try:
        return Marker(text).evaluate(environment)
    except (InvalidMarker, UndefinedEnvironmentName, ValueError):
        return True


def read_uv_lock(text: str, where: str, *, machine: str = "x86_64") -> Listing:
    """Read a project's uv.lock; where several versions stand side by side, one is kept and the choice is noted."""
    plain = parse_toml(text, where)
    listed = plain.get("package", [])
    if not isinstance(listed, list) or not all(
        isinstance(it, dict) and isinstance(it.get("name"), str) for it in listed
    ):
        raise LockError(f"`{where}` is not a uv.lock: its packages have no names", hint="name a whole uv.lock")
    python = _minor_of(plain.get("requires-python"))
    here = [it for it in listed if _applies(_list(it.get("resolution-markers")), python, machine)]
    packages = [_of_uv(it) for it in here if not _is_project(it)]
    kept, notes = _one_version_each(packages)
    return Listing(kind="uv.lock", packages=kept, python=python, notes=notes)


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _table(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _is_project(package: Mapping[str, Any]) -> bool:
    """Whether this is the project itself or a member of its workspace, which no index serves."""
    source = _table(package.get("source"))
    return source.get("editable") == "." or "virtual" in source


def _of_uv(package: Mapping[str, Any]) -> Listed:
    source = _table(package.get("source"))
    files = [it for it in (*_list(package.get("wheels")), package.get("sdist")) if isinstance(it, dict)]
    names = tuple(_file_name(str(it.get("url") or it.get("filename") or it.get("path") or "")) for it in files)
    digests = tuple(str(it["hash"]) for it in files if isinstance(it.get("hash"), str))
    git, registry = _text(source.get("git")), _text(source.get("registry"))
    local = any(key in source for key in ("editable", "directory", "path"))
    hashed: bool | None = len(digests) == len(files) if files else False if local or "url" in source else None
    return Listed(
        name=str(canonicalize_name(package["name"])),
        version=clean_version(str(package.get("version", ""))),
        files=names,
        hashes=digests,
        hashed=None if git else hashed,
        index=bare_url(registry) if registry and "://" in registry else None,
        url=bare_url(str(source["url"])) if "url" in source else None,
        vcs=_uv_git(git) if git else None,
        editable="editable" in source,
    )


def _uv_git(source: str) -> Vcs:
    """Read `https://host/path?rev=v1#commit`."""
    parts = urlsplit(source)
    commit = parts.fragment or None
    return Vcs(kind="git", url=bare_url(source), commit=commit)


def _one_version_each(packages: list[Listed]) -> tuple[tuple[Listed, ...], tuple[str, ...]]:
    """Keep the highest version of each name: uv.lock holds those of extras that exclude each other, too."""
    by_name: dict[str, list[Listed]] = {}
    for package in packages:
        by_name.setdefault(package.name, []).append(package)
    notes = []
    kept = []
    for name, group in by_name.items():
        group.sort(key=lambda it: Version(it.version or "0"), reverse=True)
        kept.append(group[0])
        if len({it.version for it in group}) > 1:
            rest = ", ".join(str(it.version) for it in group[1:])
            notes.append(
                f"{name} is locked in several versions (extras or platforms); {group[0].version} was taken, not {rest}"
            )
    return tuple(kept), tuple(notes)
