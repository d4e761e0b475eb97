"""Exports written for shells, files and schedulers, so that any value survives. Pure."""

from __future__ import annotations

import json
import re

from verl_env.environment.activation import Activation, values_of
from verl_env.environment.docker_env import render_env_lines
from verl_env.environment.exports import SET, Export
from verl_env.environment.fish_shell import render_fish
from verl_env.environment.posix_shell import render_posix
from verl_env.environment.ray_env import render_runtime_env

# srun passes a job script's variables on by default, but not in a job that was submitted with --export=NONE: sbatch
# then sets this to NONE (sbatch(1), "SLURM_EXPORT_ENV").
_SLURM = Export(name="SLURM_EXPORT_ENV", value="ALL", how=SET, why="srun passes these on, whatever sbatch said")

_BEFORE_QUOTE = re.compile(r"\\(?=[\\'])")


def render_exports(it: Activation, form: str) -> str:
    """Return the exports in one of FORMATS."""
    return _RENDERERS[form](it)


def _posix(it: Activation) -> str:
    return render_posix(it.exports, it.folder, it.owned)


def _fish(it: Activation) -> str:
    return render_fish(it.exports, it.folder, it.owned)


def _slurm(it: Activation) -> str:
    return render_posix((*it.exports, _SLURM), it.folder, it.owned)


def _dotenv(it: Activation) -> str:
    return "".join(_dotenv_line(name, value) for name, value in values_of(it).items())


def _json(it: Activation) -> str:
    return json.dumps(values_of(it), indent=2, ensure_ascii=False) + "\n"


def _docker(it: Activation) -> str:
    return render_env_lines(it.exports)


def _ray(it: Activation) -> str:
    return render_runtime_env(it.folder, it.exports, values_of(it))


def _dotenv_line(name: str, value: str) -> str:
    r"""Write one line: bare when plain, else in single quotes, where readers take `$` as it is and `\` escapes quotes.

    A carriage return has to be escaped, which only double quotes know, where some readers expand `$`. Before a closing
    quote of either kind readers take a backslash for an escape.
    """
    if value and all(char.isalnum() or char in "/._-+:,@%" for char in value):
        return f"{name}={value}\n"
    if value.endswith("\\") or ("\r" in value and "$" in value):
        return f"# {name} has a value that readers of such files do not agree on: set it elsewhere\n"
    if "\r" in value:
        escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
        return f'{name}="{escaped}"\n'
    escaped = _BEFORE_QUOTE.sub(r"\\\\", value).replace("'", "\\'")
    return f"{name}='{escaped}'\n"


_RENDERERS = {
    "sh": _posix,
    "bash": _posix,
    "zsh": _posix,
    "fish": _fish,
    "dotenv": _dotenv,
    "json": _json,
    "docker": _docker,
    "slurm": _slurm,
    "ray": _ray,
}
FORMATS = tuple(_RENDERERS)
