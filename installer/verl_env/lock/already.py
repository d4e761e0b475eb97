"""Which of a lock's packages a place has already: by name and version, as its metadata says them. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from verl_env.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from verl_env.matrix.pins import Pin

_LINE = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)\s*==\s*([^\s;#]+)")
# What `pip freeze` and people write beside pins; such packages are not taken for being there.
_OTHER = re.compile(r"(#|-|\w[\w.-]*\s*(\[[^]]*\])?\s*@|\s*$)")


def same_release(pinned: str, found: str, cuda: str | None) -> bool:
    """Whether a version that was found is the pinned one.

    The default index serves torch 2.11.0 where PyTorch's own says 2.11.0+cu130: a label is no difference when the
    pin has none and the label is of the lock's CUDA.
    """
    try:
        one, other = Version(pinned), Version(found)
    except InvalidVersion:
        return pinned == found
    if one == other:
        return True
    label = f"cu{cuda.replace('.', '')}" if cuda else None
    return one.local is None and label is not None and other.local == label and one.public == other.public


def already_there(pins: Iterable[Pin], have: Mapping[str, str], cuda: str | None) -> tuple[Pin, ...]:
    """Return the pins that a place has; `have` is version by normalised name."""
    return tuple(pin for pin in pins if pin.name in have and same_release(pin.version, have[pin.name], cuda))


def parse_freeze(text: str, where: str) -> dict[str, str]:
    """Read `name==version` lines, as `pip freeze` and `uv pip freeze` print them; raises UsageError for other lines."""
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        match = _LINE.match(line.strip())
        if match:
            found[canonicalize_name(match[1])] = match[2]
        elif not _OTHER.match(line.strip()):
            raise UsageError(
                f"`{where}` line {number} is no `name==version`: `{line.strip()[:60]}`",
                hint="write it with `pip freeze` in the target's Python, or name an environment",
            )
    return found
