"""Wishes that the pins keep from their newest release: a resolver walks back without a word. An edge."""

from __future__ import annotations

from typing import TYPE_CHECKING

from packaging.version import Version

from verl_env import uv
from verl_env.errors import ResolveError
from verl_env.lock.locate import base_options

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Sequence

    from verl_env.indexes import Indexes
    from verl_env.lock.wishes import Wish
    from verl_env.matrix.pins import Pins


def held_back(
    wishes: Sequence[Wish], base: Pins, result: Pins, indexes: Indexes, exclude_newer: dt.date | None
) -> tuple[str, ...]:
    """Return a note for each added wish whose newest release was not taken; none when the indexes do not say."""
    theirs = {pin.name for pin in base.pins}
    added = {pin.name: pin.version for pin in result.pins if pin.name not in theirs}
    asked = [it for it in wishes if it.name in added and not it.constraint]
    if not asked:
        return ()
    head = base.header
    words = ["--no-deps", "--python-version", head.python, "--only-binary", ":all:", "--prerelease", "explicit"]
    words += ["--python-platform", f"{head.arch}-manylinux_{(head.glibc or '2.28').replace('.', '_')}"]
    words += ["--exclude-newer", exclude_newer.isoformat()] if exclude_newer else []
    text = "".join(f"{it.text}\n" for it in asked)
    try:
        document = uv.compile_pylock(text, [*words, *base_options(indexes)])
    except ResolveError:
        return ()
    newest = {package["name"]: package["version"] for package in document["packages"]}
    return tuple(
        f"{name} {version} was taken, because {newest[name]} does not go with the pins"
        for name, version in added.items()
        if name in newest and Version(newest[name]) > Version(version)
    )
