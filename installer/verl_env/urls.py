"""URLs and other people's text, fit to be shown and kept: no logins, no tokens, no home folders. Pure."""

from __future__ import annotations

import re
from urllib.parse import urlsplit, urlunsplit

_MOST = 120  # characters: one line of a terminal


def bare_url(url: str) -> str:
    """Return a URL without login, query and fragment: tokens hide in all three.

    `git@` of an ssh URL stays: it is everybody's name there (PEP 610), and nobody gets in under another.
    """
    try:
        parts = urlsplit(url)
        login, at, host = parts.netloc.rpartition("@")
        named = parts.scheme.rpartition("+")[2] == "ssh" and login.partition(":")[0] == "git"
        place = f"git{at}{host}" if named else host
        return urlunsplit((parts.scheme, place, parts.path, "", ""))
    except ValueError:
        return "(a URL)"


def shown(text: str) -> str:
    """Return a line fit to be shown: URLs bare, home folders gone, not too long."""
    plain = re.sub(r"[a-zA-Z][\w+.-]*://\S+", lambda found: bare_url(found[0]), text)
    plain = re.sub(r"(/home/|/Users/|/root)[^\s/]*", r"~", plain)
    return plain if len(plain) <= _MOST else plain[: _MOST - 3] + "…"
