"""Exports written for sh, fish, dotenv and JSON, so that any value survives. Pure."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING

from verl_env.environment.docker_env import render_env_lines
from verl_env.environment.exports import PREPEND, UNSET, Export, applied

if TYPE_CHECKING:
    from collections.abc import Mapping

FORMATS = ("sh", "fish", "dotenv", "json", "docker")


def render_exports(exports: tuple[Export, ...], form: str, environ: Mapping[str, str]) -> str:
    """Return the exports in one of FORMATS; dotenv and json hold whole values, joined with `environ`'s lists."""
    if form == "sh":
        return "".join(_sh(export) for export in exports)
    if form == "fish":
        return "".join(_fish(export) for export in exports)
    if form == "docker":
        return render_env_lines(exports)
    values = applied(exports, environ)
    names = dict.fromkeys(export.name for export in exports if export.name in values)
    if form == "json":
        return json.dumps({name: values[name] for name in names}, indent=2, ensure_ascii=False) + "\n"
    return "".join(f"{name}={_dotenv(values[name])}\n" for name in names)


def _sh(export: Export) -> str:
    """POSIX sh; bash and zsh read it the same way."""
    if export.how == UNSET:
        return f"unset {export.name}\n"
    value = _sh_quoted(export.value)
    if export.how == PREPEND:
        return f'export {export.name}={value}"${{{export.name}:+:${export.name}}}"\n'
    return f"export {export.name}={value}\n"


def _sh_quoted(value: str) -> str:
    """Quote for sh and its heirs; zsh takes an unquoted `=word` for the path of a command, and shlex leaves it so."""
    return "'" + value.replace("'", "'\"'\"'") + "'" if "=" in value else shlex.quote(value)


def _fish(export: Export) -> str:
    r"""Write for fish: inside single quotes only `\` and `'` are special."""
    if export.how == UNSET:
        return f"set -e {export.name}\n"
    value = "'" + export.value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    if export.how == PREPEND and export.name == "PATH":
        return f"set -gx PATH {value} $PATH\n"
    if export.how == PREPEND:
        name = export.name
        return f'if set -q {name}\n    set -gx {name} {value}":${name}"\nelse\n    set -gx {name} {value}\nend\n'
    return f"set -gx {export.name} {value}\n"


def _dotenv(value: str) -> str:
    """Quote a value for dotenv readers: bare when plain, else single quotes, or double with escapes."""
    if value and all(char.isalnum() or char in "/._-+:,@%" for char in value):
        return value
    if "'" not in value and "\n" not in value and "\r" not in value and "\\" not in value:
        return f"'{value}'"
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return '"' + escaped.replace("$", "\\$") + '"'
