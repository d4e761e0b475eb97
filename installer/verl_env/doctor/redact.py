"""Taking out of text what must not travel: tokens, passwords in URLs, names of people in paths. Pure."""

from __future__ import annotations

import re

_SECRETS = (
    (re.compile(r"\b(hf_|sk-|ghp_|gho_|github_pat_|glpat-|xox[abp]-|AKIA|wandb_v1_)[A-Za-z0-9_\-]{8,}"), r"\1…"),
    (re.compile(r"(\b[a-z][a-z0-9+.-]*://)[^/\s:@]*:?[^/\s@]*@"), r"\1…@"),
    (re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9+/=._\-]{8,}"), r"\1 …"),
    (
        re.compile(
            r"(?i)([\w-]*(?:token(?!s|iz)|secret|passw(?:or)?d|api[_-]?key|access[_-]?key)[\w-]*[\"']?\s*(?:=(?!=)|:)\s*[\"']?)[^\s\"',;&]{4,}"
        ),
        r"\1…",
    ),
    (re.compile(r"([?&](?:sig|signature|X-Amz-\w+|token|key)=)[^&\s]+"), r"\1…"),
)
_HOMES = re.compile(
    r"(/(?:home|Users|data/home|mnt/home|scratch|gpfs/home)/)[^/\s:'\",;)\]]+|/root(?=[/\s:'\",;)\]]|$)"
)


def without_secrets(text: str) -> str:
    """Return the text with tokens and credentials masked."""
    for pattern, instead in _SECRETS:
        text = pattern.sub(instead, text)
    return text


def without_people(text: str, *, home: str = "", user: str = "", host: str = "") -> str:
    """Return the text without secrets, with the home folder as `~`, and without user and host names."""
    text = without_secrets(text)
    if home and home != "/":
        text = text.replace(home, "~")
    text = _HOMES.sub(lambda found: f"{found[1]}…" if found[1] else "~", text)
    for name, instead in ((user, "USER"), (host, "HOST")):
        if len(name) > 2 and name not in ("root", "localhost"):  # noqa: PLR2004 - shorter ones are words
            text = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", instead, text)
    return text
