"""Packages that another index has under the same name: what uv's own rule for that says of a result. An edge."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from verl_env import uv
from verl_env.errors import ResolveError
from verl_env.lock.locate import base_options

if TYPE_CHECKING:
    from verl_env.indexes import Indexes
    from verl_env.matrix.pins import Pin, Pins

_TRUST = "UV_INDEX_STRATEGY=unsafe-best-match"


def refuse_doubtful(base: Pins, result: Pins, indexes: Indexes) -> None:
    """Refuse an added package that another index in use has under the same name, and that would come first.

    uv's own rule is that the first index with a name is the only one asked (or anybody could publish a higher
    version of an internal package); pins are resolved across indexes, so what they bring is held against that rule.
    """
    added = tuple(pin for pin in result.pins if pin not in base.pins)
    if not indexes.extra or not added or os.environ.get("UV_INDEX_STRATEGY", "").startswith("unsafe-"):
        return
    options = [*base_options(indexes)[:-1], "first-index", "--no-deps", "--universal", "--only-binary", ":all:"]
    words = ["--python-version", base.header.python, *options]
    try:
        listed = _hashes(added, words)
    except ResolveError:
        listed = {}
        for pin in added:  # one by one, to name the first that is in doubt
            try:
                listed |= _hashes((pin,), words)
            except ResolveError as err:  # noqa: PERF203 - which one it is counts here, not speed
                raise _elsewhere(pin, err) from err
    for pin in added:
        if pin.sha256 not in listed.get(pin.name, ()):
            raise ResolveError(
                f"`{pin.name}` {pin.version} is another file in each of the indexes in use",
                hint=f"take one of them out of the settings, or trust all alike: {_TRUST}",
            )


def _hashes(pins: tuple[Pin, ...], words: list[str]) -> dict[str, set[str]]:
    """Return the hashes of these releases in the first index that has each name."""
    document = uv.compile_pylock("".join(f"{pin.name}=={pin.version}\n" for pin in pins), words)
    return {
        package["name"]: {
            file.get("hashes", {}).get("sha256") for file in (*package.get("wheels", ()), package.get("sdist", {}))
        }
        for package in document["packages"]
    }


def _elsewhere(pin: Pin, err: ResolveError) -> ResolveError:
    return ResolveError(
        f"`{pin.name}` is in more than one index, and the first one does not have {pin.version}",
        details=err.details[-2:],
        hint=f"ask for one that the first has (--with '{pin.name}==VERSION'), or trust all alike: {_TRUST}",
    )
