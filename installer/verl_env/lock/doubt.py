"""Packages that another index has under the same name: what uv's own rule for that says of a result. An edge."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from verl_env import uv
from verl_env.errors import ResolveError
from verl_env.lock.locate import base_options

if TYPE_CHECKING:
    from verl_env.indexes import Indexes
    from verl_env.matrix.pins import Pins

_TRUST = "UV_INDEX_STRATEGY=unsafe-best-match"


def refuse_doubtful(base: Pins, result: Pins, indexes: Indexes) -> None:
    """Refuse an added package that another index in use has under the same name, and that would come first.

    uv's own rule is that the first index with a name is the only one asked (or anybody could publish a higher
    version of an internal package); pins are resolved across indexes, so what they bring is held against that rule.
    """
    added = tuple(pin for pin in result.pins if pin not in base.pins)
    if not indexes.extra or not added or os.environ.get("UV_INDEX_STRATEGY", "").startswith("unsafe-"):
        return
    options = [*base_options(indexes)[:-1], "first-index", "--no-deps", "--universal"]
    words = ["--python-version", base.header.python, *options]
    for pin in added:
        try:
            document = uv.compile_pylock(f"{pin.name}=={pin.version}\n", words)
        except ResolveError as err:
            raise ResolveError(
                f"`{pin.name}` is in more than one index, and the first one does not have {pin.version}",
                details=err.details[-2:],
                hint=f"ask for one that the first has (--with '{pin.name}==VERSION'), or trust all alike: {_TRUST}",
            ) from err
        hashes = {
            file.get("hashes", {}).get("sha256")
            for package in document["packages"]
            for file in (*package.get("wheels", ()), package.get("sdist", {}))
        }
        if pin.sha256 not in hashes:
            raise ResolveError(
                f"`{pin.name}` {pin.version} is another file in each of the indexes in use",
                hint=f"take one of them out of the settings, or trust all alike: {_TRUST}",
            )
