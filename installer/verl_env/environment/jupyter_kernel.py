"""An environment as a Jupyter kernel: a file in the user's folder of kernels.

Jupyter puts variables in the place of `${NAME}` in a kernel's variables, and takes `$$` for `$` (jupyter_client,
`_apply_env_substitutions`: Python's string.Template).
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verl_env import paths
from verl_env.environment.activation import values_of
from verl_env.environment.exports import EMPTY_IS_UNSET, PREPEND, UNSET
from verl_env.errors import UsageError
from verl_env.files import write_atomically

if TYPE_CHECKING:
    from verl_env.environment.activation import Activation

_NAME = re.compile(r"[A-Za-z0-9._-]+")  # jupyter_client, kernelspec.py


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """A kernel: `spec` is what its kernel.json holds, `file` where that is or goes."""

    name: str
    folder: Path
    file: Path
    spec: dict[str, Any]


def check_name(name: str) -> str:
    """Return the name when Jupyter takes it for one; raises UsageError."""
    if not _NAME.fullmatch(name) or name.startswith("."):
        raise UsageError(f"`{name}` is no name for a kernel", hint="use letters, digits, dots, dashes and underscores")
    return name


def kernel_of(name: str, title: str, it: Activation) -> Kernel:
    """Return the kernel of an environment; lists are put in front of those that Jupyter runs with."""
    variables: dict[str, str] = {}
    values = values_of(it)
    for export in it.exports:
        if export.how == UNSET:
            variables |= {export.name: ""} if export.name in EMPTY_IS_UNSET else {}
        elif export.how == PREPEND:
            front = variables.get(export.name, f"${{{export.name}}}")
            variables[export.name] = f"{_escaped(export.value)}:{front}"
        else:
            variables[export.name] = _escaped(values[export.name])
    variables |= {name: _escaped(value) for name, value in values.items() if name not in variables}
    spec = {
        "argv": [f"{it.folder}/bin/python", "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": title,
        "language": "python",
        "env": variables,
        "metadata": {"debugger": True, "verl-env": {"environment": it.folder}},
    }
    return Kernel(name=name, folder=Path(it.folder), file=_kernels() / name / "kernel.json", spec=spec)


def has_ipykernel(kernel: Kernel) -> bool:
    """Whether the environment, or the base that it rests on, can start a kernel."""
    from verl_env.environment.library_path import package_folders

    return any((place / "ipykernel_launcher.py").is_file() for place in package_folders(kernel.folder))


def register(kernel: Kernel, *, dry: bool) -> bool:
    """Write the file by one rename, and return whether it differed; raises UsageError for somebody else's kernel."""
    text = json.dumps(kernel.spec, indent=1, ensure_ascii=False) + "\n"
    there = _read(kernel.file)
    if there == text:
        return False
    if kernel.file.parent.exists() and "verl-env" not in _metadata(there):
        raise UsageError(
            f"a kernel `{kernel.name}` is there, and verl-env did not make it: {kernel.file.parent}",
            hint="choose another name: --kernel NAME",
        )
    if not dry:
        write_atomically(kernel.file, text)
    return True


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def _metadata(text: str | None) -> dict[str, Any]:
    """Return a kernel's metadata, or nothing when there is none that can be read."""
    try:
        found = json.loads(text or "{}")["metadata"]
    except (ValueError, KeyError, TypeError):
        return {}
    return found if isinstance(found, dict) else {}


def _escaped(value: str) -> str:
    return value.replace("$", "$$")


def _kernels() -> Path:
    """Return the user's folder of kernels (jupyter_core, paths.py)."""
    if chosen := os.environ.get("JUPYTER_DATA_DIR"):
        return Path(chosen) / "kernels"
    base = os.environ.get("XDG_DATA_HOME")
    return (Path(base) if base else paths.user_home() / ".local" / "share") / "jupyter" / "kernels"
