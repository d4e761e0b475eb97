"""Which indexes a node is set up with: the settings of verl-env, uv and pip, in that order, each said by name.

uv does not read pip's settings, and a resolution must not read a project's; so the settings are read here and
given to uv by name, and uv runs with --no-config.
"""

from __future__ import annotations

import configparser
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from verl_env import toml
from verl_env.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorExport:
    """A variable that a mirror asks for, where the lock has the package `needs`; `why` names the mirror."""

    name: str
    value: str
    why: str
    needs: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Indexes:
    """What `default` means here, and where else a pinned file may be found.

    `default` is None for uv's own default index. `origins` are (setting, its value without credentials). `mirrors`
    give a source (option of uv, URL) to ask before its own index; `exports` are variables that they ask for.
    """

    default: str | None = None
    extra: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    origins: tuple[tuple[str, str], ...] = ()
    by_source: Mapping[str, str] = field(default_factory=dict)
    mirrors: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    exports: tuple[MirrorExport, ...] = ()


def masked(url: str) -> str:
    """Return a URL without its user name and password."""
    return re.sub(r"(?<=://)[^/\s]+@", "***@", url)


def read_indexes(asked: str | None = None) -> Indexes:
    """Read every setting of this process and this user; `asked` is `--index` and beats them all."""
    found = [("--index", {"default": asked})] if asked else []
    found += [*_uv_variables(os.environ), *_uv_files(), *_pip_variables(os.environ), *_pip_files()]
    return merge_settings(found, by_source=_by_source(os.environ))


def merge_settings(
    settings: Iterable[tuple[str, Mapping[str, Any]]], *, by_source: Mapping[str, str] | None = None
) -> Indexes:
    """Merge settings, strongest first: the first default wins; the others add up, without repeats."""
    default: str | None = None
    extra: dict[str, None] = {}
    links: dict[str, None] = {}
    origins: list[tuple[str, str]] = []
    for name, setting in settings:
        chosen = setting.get("default")
        if chosen and default is None:
            default = chosen
        for url in setting.get("extra", ()):
            extra[url] = None
        for place in setting.get("find_links", ()):
            links[place] = None
        said = [chosen or "", *setting.get("extra", ()), *setting.get("find_links", ())]
        if any(said):
            origins.append((name, " ".join(masked(it) for it in said if it)))
    return Indexes(
        default=default,
        extra=tuple(extra),
        find_links=tuple(links),
        origins=tuple(origins),
        by_source=dict(by_source or {}),
    )


def _by_source(environ: Mapping[str, str]) -> dict[str, str]:
    """Read VERL_ENV_INDEX_<SOURCE>: a mirror for one source of pins, as VERL_ENV_INDEX_PYTORCH_CPU."""
    prefix = "VERL_ENV_INDEX_"
    return {
        name.removeprefix(prefix).lower().replace("_", "-"): value
        for name, value in environ.items()
        if name.startswith(prefix) and value
    }


def _uv_variables(environ: Mapping[str, str]) -> list[tuple[str, dict[str, Any]]]:
    """Read uv's variables; UV_INDEX may hold `name=url` words."""
    unnamed = [word.split("=", 1)[-1] if _named(word) else word for word in environ.get("UV_INDEX", "").split()]
    return [
        ("UV_DEFAULT_INDEX", {"default": _unnamed(environ.get("UV_DEFAULT_INDEX", ""))}),
        ("UV_INDEX_URL", {"default": environ.get("UV_INDEX_URL")}),
        ("UV_INDEX", {"extra": unnamed}),
        ("UV_EXTRA_INDEX_URL", {"extra": environ.get("UV_EXTRA_INDEX_URL", "").split()}),
        ("UV_FIND_LINKS", {"find_links": environ.get("UV_FIND_LINKS", "").replace(",", " ").split()}),
    ]


def _named(word: str) -> bool:
    return re.match(r"[\w-]+=", word) is not None


def _unnamed(word: str) -> str:
    return word.split("=", 1)[1] if _named(word) else word


def _pip_variables(environ: Mapping[str, str]) -> list[tuple[str, dict[str, Any]]]:
    return [
        ("PIP_INDEX_URL", {"default": environ.get("PIP_INDEX_URL")}),
        ("PIP_EXTRA_INDEX_URL", {"extra": environ.get("PIP_EXTRA_INDEX_URL", "").split()}),
        ("PIP_FIND_LINKS", {"find_links": environ.get("PIP_FIND_LINKS", "").split()}),
    ]


def _uv_files() -> list[tuple[str, dict[str, Any]]]:
    """Read uv's user and system settings (uv docs, "Configuration files"); a project's are not ours to follow."""
    config = Path(os.environ.get("XDG_CONFIG_HOME") or Path(os.environ.get("HOME", "/")) / ".config")
    paths = (config / "uv" / "uv.toml", Path("/etc/xdg/uv/uv.toml"), Path("/etc/uv/uv.toml"))
    return [(str(path), uv_settings(_text(path), str(path))) for path in paths if path.is_file()]


def uv_settings(text: str, where: str) -> dict[str, Any]:
    """Take the index settings out of a uv.toml: `[[index]]`, and the older keys at the top and under `[pip]`."""
    try:
        plain = toml.loads(text)
    except toml.TOMLDecodeError as err:
        raise UsageError(f"`{where}` is not TOML: {err}", hint="correct that file") from err
    listed = plain.get("index", [])
    pip = plain.get("pip", {})
    default = next((it.get("url") for it in listed if it.get("default")), None)
    return {
        "default": default or plain.get("index-url") or pip.get("index-url"),
        "extra": [
            *(it["url"] for it in listed if not it.get("default") and not it.get("explicit") and "url" in it),
            *plain.get("extra-index-url", []),
            *pip.get("extra-index-url", []),
        ],
        "find_links": [*plain.get("find-links", []), *pip.get("find-links", [])],
    }


def _pip_files() -> list[tuple[str, dict[str, Any]]]:
    """Read pip's settings files, the user's before the system's (pip docs, "Configuration files")."""
    home = Path(os.environ.get("HOME", "/"))
    config = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
    named = os.environ.get("PIP_CONFIG_FILE")
    if named == os.devnull:
        return []
    system = [Path(base) / "pip" / "pip.conf" for base in os.environ.get("XDG_CONFIG_DIRS", "/etc/xdg").split(":")]
    paths = [
        *([Path(named)] if named else []),
        config / "pip" / "pip.conf",
        home / ".pip" / "pip.conf",
        Path("/etc/pip.conf"),
        *system,
    ]
    return [(str(path), pip_settings(_text(path), str(path))) for path in paths if path.is_file()]


def pip_settings(text: str, where: str) -> dict[str, Any]:
    """Take the index settings out of a pip.conf: `[install]` beats `[global]`."""
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(text, source=where)
    except configparser.Error as err:
        raise UsageError(f"`{where}` cannot be read: {err}", hint="correct that file") from err

    def words(key: str) -> list[str]:
        for section in ("install", "global"):
            if parser.has_option(section, key):
                return str(parser.get(section, key)).split()
        return []

    return {
        "default": next(iter(words("index-url")), None),
        "extra": words("extra-index-url"),
        "find_links": words("find-links"),
    }


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as err:
        raise UsageError(f"`{path}` cannot be read: {err}", hint="correct that file or its permissions") from err
