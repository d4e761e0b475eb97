"""Where things live: XDG folders by default, and one variable, VERL_ENV_HOME, that moves them all."""

from __future__ import annotations

import os
from pathlib import Path

from verl_env.errors import UsageError


def user_home() -> Path:
    """Return the user's home folder; UsageError when there is none (a container's nameless user)."""
    try:
        found = Path(os.environ.get("HOME") or Path.home())
    except RuntimeError:
        found = Path("/nonexistent")
    if not found.is_absolute() or str(found) == "/nonexistent":
        raise UsageError("HOME is not set, so there is no place for environments", hint="set HOME or VERL_ENV_HOME")
    return found


def home() -> Path:
    """Return the folder that holds environments, logs and locks."""
    if moved := os.environ.get("VERL_ENV_HOME"):
        return Path(moved).expanduser().absolute()
    base = os.environ.get("XDG_DATA_HOME")
    return (Path(base) if base else user_home() / ".local" / "share") / "verl-env"


def environments() -> Path:
    """Return the folder of environments; each is one complete, unchanging folder in it."""
    return home() / "environments"


def current() -> Path:
    """Return the link to the environment in use."""
    return home() / "current"


def wheelhouse() -> Path:
    """Return the folder of wheels that were built or adopted here; VERL_ENV_WHEELHOUSE names a shared one."""
    if moved := os.environ.get("VERL_ENV_WHEELHOUSE"):
        return Path(moved).expanduser().absolute()
    return home() / "wheelhouse"


def logs() -> Path:
    """Return the folder of logs, outside of environments so that it outlives a failed one."""
    return home() / "logs"


def uv_cache() -> Path:
    """Return uv's cache folder: the user's own setting, beside a moved home, or uv's default."""
    if chosen := os.environ.get("UV_CACHE_DIR"):
        return Path(chosen).expanduser().absolute()
    if os.environ.get("VERL_ENV_HOME"):
        return home() / "cache" / "uv"
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else user_home() / ".cache") / "uv"
