"""Which kind of list a text is, and reading it as that. Pure, but for `read_file`."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from verl_env.capture.read_conda import read_conda_export, read_conda_list
from verl_env.capture.read_locks import read_pylock, read_uv_lock
from verl_env.capture.read_own_report import is_own_report, read_own_report
from verl_env.capture.read_reports import read_check_env, read_collect_env
from verl_env.capture.read_requirements import read_pip_list, read_requirements_text
from verl_env.capture.read_script import is_script, read_script
from verl_env.capture.read_session import is_session, read_session
from verl_env.errors import UsageError
from verl_env.files import read_bounded

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from verl_env.capture.listing import Listing

_MOST_BYTES = 32_000_000
_KINDS = (
    "a PEP 751 lockfile, a uv.lock, requirements, `pip freeze`, `pip list`, `conda env export`, `conda list`, "
    "a report of `verl-env report`, a collect_env or check_env report, or an install script"
)
_BOMS = ((b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"), (b"\xef\xbb\xbf", "utf-8-sig"))
_ONE_PYTHON = re.compile(r"-cp(3)([0-9]{1,2})-cp\1\2-[^-]+\.whl$")
_PIP_TABLE = re.compile(r"^Package\s+Version|^\s*\[\s*\{\s*\"name\"|^[\w.-]+ \([0-9][\w.+-]*\)$", re.MULTILINE)
_CONDA_LIST = r"^# packages in environment|^@EXPLICIT|^# platform:|^[\w.-]+=[0-9][^=\s]*=\S+$"
_COLUMNS = re.compile(r"^[A-Za-z0-9][\w.-]*[ \t]+[0-9][\w.!+-]*\s*$", re.MULTILINE)


def read_file(path: Path) -> Listing:
    """Read any list from disk (`-` is stdin); raises UsageError or LockError that names it."""
    text = _decoded(_bytes(path), str(path))

    def beside(name: str) -> str:
        place = path.parent / name
        return _decoded(_bytes(place), name)

    return read_text(text, path.name, beside)


def read_text(text: str, name: str, beside: Callable[[str], str] | None = None) -> Listing:
    """Read a text as what it looks like; `name` helps where two kinds look alike."""
    found = _read(text, name, beside)
    if not (found.packages or found.driver or found.gpus):
        raise UsageError(f"`{name}` names no package", hint=f"give {_KINDS}")
    return found if found.python else replace(found, python=_python_of_wheels(found))


def _python_of_wheels(found: Listing) -> str | None:
    """Return the Python that the wheels in a list are for, where it names such and they agree: `-cp310-cp310-`."""
    tagged = (_ONE_PYTHON.search(file) for package in found.packages for file in package.files)
    minors = {f"{it[1]}.{it[2]}" for it in tagged if it}
    return minors.pop() if len(minors) == 1 else None


def _read(text: str, name: str, beside: Callable[[str], str] | None) -> Listing:
    """Go through the kinds, those that are surest to tell first."""
    packages = _says(r"^\[\[package\]\]", text)
    if name.endswith(".lock") or (packages and _says(r"^version\s*=\s*[0-9]", text)):
        return read_uv_lock(text, name)
    if _says(r"^lock-version\s*=", text) or (name.startswith("pylock") and name.endswith(".toml")):
        return read_pylock(text, name)
    for tells, read in _TELLING:
        if tells(text):
            return read(text)
    if _PIP_TABLE.search(text) or (_COLUMNS.search(text) and "==" not in text):
        return read_pip_list(text, name)
    return read_requirements_text(text, name, beside)


def _says(pattern: str, text: str) -> bool:
    return re.search(pattern, text, re.MULTILINE) is not None


_TELLING: tuple[tuple[Callable[[str], bool], Callable[[str], Listing]], ...] = (
    (is_own_report, read_own_report),
    (lambda text: _says(r"^\s*(PyTorch version|Nvidia driver version|\[pip3?\] )", text), read_collect_env),
    (lambda text: _says(r"^(CUDA available|CUDA Driver Version|sgl_kernel|sglang):", text), read_check_env),
    (is_session, read_session),
    (lambda text: _says(r"^dependencies:", text), read_conda_export),
    (lambda text: _says(_CONDA_LIST, text), read_conda_list),
    (is_script, read_script),
)


def _bytes(path: Path) -> bytes:
    """Read a file whole, if it is one and not absurdly large."""
    try:
        if str(path) == "-":
            import sys

            return sys.stdin.buffer.read(_MOST_BYTES)
        if path.is_dir():
            raise UsageError(f"`{path}` is a folder", hint=f"give {_KINDS}")
        return read_bounded(path, _MOST_BYTES)
    except (OSError, ValueError) as err:
        what = err.strerror if isinstance(err, OSError) else str(err)
        raise UsageError(f"`{path}` cannot be read: {what}", hint="name a file that is there") from err


def _decoded(content: bytes, name: str) -> str:
    """Decode UTF-8, or what a byte order mark says (PowerShell writes UTF-16)."""
    encoding = next((it for mark, it in _BOMS if content.startswith(mark)), "utf-8")
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as err:
        raise UsageError(f"`{name}` is not text: {err.reason} at byte {err.start}", hint="save it as UTF-8") from err
    if "\x00" in text:
        raise UsageError(f"`{name}` is not text: it has NUL bytes", hint=f"give {_KINDS}")
    return text
