"""Reading TOML: the standard library's reader, or tomli (the same code) before Python 3.11."""

from __future__ import annotations

import sys
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TOMLDecodeError = tomllib.TOMLDecodeError


def loads(text: str) -> dict[str, Any]:
    """Parse a document; raises TOMLDecodeError with line and column."""
    document: dict[str, Any] = tomllib.loads(text)
    return document
