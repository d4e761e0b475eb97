"""Reading what conda writes: `conda env export`, `conda list` in its three forms. Pure.

An export is YAML of one fixed shape (a list of strings, one of them a nested list); reading its lines takes less than
a YAML library would, and cannot be led to build objects.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from verl_env.capture.listing import Listed, Listing, clean_version, merged
from verl_env.capture.read_requirements import parse_line
from verl_env.urls import shown

if TYPE_CHECKING:
    from collections.abc import Iterator

_ITEM = re.compile(r"(?P<indent>\s*)-\s+(?P<value>\S.*)")
_SPEC = re.compile(r"(?:[\w./:-]+::)?(?P<name>[\w.-]+)\s*=?=?\s*(?P<version>[^=\s<>!~]*)(?:=(?P<build>\S+))?")
_LIST_ROW = re.compile(r"(?P<name>[A-Za-z_0-9][\w.-]*)\s+(?P<version>\S+)\s+(?P<build>\S+)(?:\s+(?P<channel>\S+))?")
_CUDA_BUILD = re.compile(r"cu(?:da)?(1[0-9])\.?([0-9])")
# Names that conda gives to what pip knows by another; libraries without Python code are left as they are.
_NAMES = {"pytorch": "torch", "pytorch-gpu": "torch", "pytorch-cpu": "torch"}


def read_conda_export(text: str) -> Listing:
    """Read an environment.yml: conda's own packages, and pip's below `- pip:`."""
    packages: list[Listed] = []
    unread: list[str] = []
    within_pip: int | None = None
    dependencies = False
    for raw in text.splitlines():
        line = re.sub(r"(^|\s)#.*$", "", raw).rstrip()
        if not line.startswith((" ", "-", "\t")):
            dependencies = line.startswith("dependencies:") if line else dependencies
            within_pip = None
            continue
        item = _ITEM.fullmatch(line)
        if not dependencies or item is None:
            continue
        value, depth = item["value"].strip("\"'"), len(item["indent"])
        if value == "pip:":
            within_pip = depth
        elif within_pip is not None and depth > within_pip:
            packages += parse_line(value, unread)
        else:
            within_pip = None
            packages += parse_spec(value, unread)
    return _listing("conda environment", packages, unread)


def read_conda_list(text: str) -> Listing:
    """Read `conda list`, `conda list --export` (name=version=build) or `--explicit` (URLs)."""
    packages: list[Listed] = []
    unread: list[str] = []
    for raw in text.splitlines():
        line = raw.strip()
        if not line or line.startswith(("#", "@EXPLICIT")):
            continue
        if "://" in line:
            line = "=".join(re.sub(r"\.(conda|tar\.bz2)(#.*)?$", "", line.rsplit("/", 1)[-1]).rsplit("-", 2))
        row = _LIST_ROW.fullmatch(line)
        packages += conda_row(row) if row else parse_spec(line, unread)
    return _listing("conda list", packages, unread)


def conda_row(row: re.Match[str]) -> Iterator[Listed]:
    """Yield the package of one row of `conda list`; pypi's are pip's."""
    of_pip = row["channel"] in ("pypi", "<pip>") or row["build"].startswith("pypi")
    version = clean_version(row["version"])
    yield Listed(name=_name(row["name"], of_pip=of_pip), version=version, spec="", foreign=not of_pip)


def parse_conda_row(line: str) -> tuple[tuple[Listed, ...], str | None]:
    """Read one row of `conda list`; return its package, and torch's CUDA if its build names one."""
    row = _LIST_ROW.fullmatch(line.strip())
    if row is None:
        return (), None
    built = _CUDA_BUILD.search(row["build"]) if row["name"] == "pytorch" else None
    return tuple(conda_row(row)), f"{built[1]}.{built[2]}" if built else None


def _name(text: str, *, of_pip: bool) -> str:
    name = str(canonicalize_name(text.lstrip("_") or text))
    return name if of_pip else _NAMES.get(name, name)


def parse_spec(text: str, unread: list[str]) -> Iterator[Listed]:
    """Yield the package of `channel::name=version=build`."""
    found = _SPEC.fullmatch(text)
    if found is None:
        unread.append(shown(text))
        return
    of_pip = bool(found["build"] and found["build"].startswith("pypi"))
    version = clean_version(found["version"]) if found["version"] else None
    yield Listed(name=_name(found["name"], of_pip=of_pip), version=version, foreign=not of_pip)


def _listing(kind: str, packages: list[Listed], unread: list[str]) -> Listing:
    """Take the Python and torch's CUDA out of conda's own packages."""
    own = {it.name: it for it in packages if it.foreign}
    python = own["python"].version if "python" in own else None
    cuda = own["pytorch-cuda"].version if "pytorch-cuda" in own else None
    rest = (it for it in packages if it.name != "python")
    return Listing(kind=kind, packages=tuple(merged(rest)), python=python, cuda=cuda, unread=tuple(unread))
