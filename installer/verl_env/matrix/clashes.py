"""Two wheels of a closure that put different contents at one path: the later installed would break the earlier. Pure.

Judged on the hashes of each wheel's RECORD (Binary distribution format; PEP 376): eleven cu12 wheels share an
identical `nvidia/__init__.py`, and that is fine.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from verl_env.matrix.rows import Allowance

RULE = "path-clash"
SHOWN = 4

_SITE_PACKAGES = re.compile(r"lib/python3\.\d+/site-packages/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Clash:
    """The `packages` (with versions) that put different contents at each of `paths`, and why the row allows it."""

    packages: tuple[str, ...]
    paths: tuple[str, ...]
    allowed: str | None = None


def parse_record(text: str) -> dict[str, str]:
    """Return where a wheel's files go, as `path: contents`; its own .dist-info is nobody else's and left out."""
    found = {}
    for row in csv.reader(text.splitlines()):
        if len(row) < 2 or ".dist-info/" in row[0].split("/", 1)[0] + "/":  # noqa: PLR2004 - path and hash
            continue
        found[installed_path(row[0])] = row[1]
    return found


def installed_path(path: str) -> str:
    """Return where a file of a wheel goes: below site-packages, or `<bin>`, `<headers>`, `<prefix>`."""
    folder, _, rest = path.partition("/")
    if not folder.endswith(".data"):
        return path
    scheme, _, rest = rest.partition("/")
    if scheme in ("purelib", "platlib"):
        return rest
    if scheme == "scripts":
        return f"<bin>/{rest}"
    if scheme == "headers":
        return f"<headers>/{folder.split('-')[0]}/{rest}"
    inside = _SITE_PACKAGES.match(rest)
    return rest[inside.end() :] if inside else f"<prefix>/{rest}"


def find_clashes(records: Mapping[str, Mapping[str, str]], allow: Iterable[Allowance] = ()) -> tuple[Clash, ...]:
    """Compare the wheels of a closure, each named as `package version`; the paths are grouped by who clashes there."""
    owners: dict[str, list[str]] = {}
    for package in sorted(records):
        for path in records[package]:
            owners.setdefault(path, []).append(package)
    rules = [it for it in allow if it.rule == RULE]
    grouped: dict[tuple[tuple[str, ...], str | None], list[str]] = {}
    for path, packages in owners.items():
        if len(packages) > 1 and len({records[package][path] for package in packages}) > 1:
            why = next((it.why for it in rules if fnmatchcase(path, it.what)), None)
            grouped.setdefault((tuple(packages), why), []).append(path)
    found = [
        Clash(packages=packages, paths=tuple(sorted(paths)), allowed=why) for (packages, why), paths in grouped.items()
    ]
    return tuple(sorted(found, key=lambda it: (it.packages, it.paths)))


def clash_line(clash: Clash) -> str:
    """Say in one line who clashes where."""
    shown = ", ".join(clash.paths[:SHOWN])
    more = f" and {len(clash.paths) - SHOWN} more" if len(clash.paths) > SHOWN else ""
    allowed = f" (allowed: {clash.allowed})" if clash.allowed else ""
    return f"{' and '.join(clash.packages)} put different contents at {shown}{more}{allowed}"
