"""Reading install scripts and Dockerfiles: what their `pip install` lines ask for, the last one winning. Pure."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from verl_env.capture.listing import Listed, Listing
from verl_env.capture.read_conda import parse_spec
from verl_env.capture.read_requirements import parse_line
from verl_env.urls import shown

if TYPE_CHECKING:
    from collections.abc import Iterator

_PIP_INSTALL = re.compile(
    r"(?:\S*/)?(?:uv\s+pip|(?:python[0-9.]*\s+-m\s+)?pip[0-9.]*)\s+install\s+(?P<words>.*)", re.DOTALL
)
_CONDA_INSTALL = re.compile(r"(?:conda|mamba|micromamba)\s+install\s+(?P<words>.*)", re.DOTALL)
_SPLIT = re.compile(r"&&|\|\||[;|\n]")
_WITH_VALUE = frozenset({
    "-i", "--index-url", "--extra-index-url", "-f", "--find-links", "-r", "--requirement", "-c", "--constraint",
    "-t", "--target", "--trusted-host", "--prefix", "--python", "-p", "--torch-backend", "--config-settings",
    "--global-option", "--index", "--default-index", "--timeout", "--retries", "--upgrade-package", "-P",
    "--channel", "-n", "--name", "--no-binary", "--only-binary", "--platform", "--python-version", "--cache-dir",
})  # fmt: skip
_PYTHON = re.compile(r"(?:conda|mamba)\s+create\s.*?python=([0-9.]+)|uv\s+venv\s.*?--python\s+([0-9.]+)")
_CUDA = re.compile(r"/whl/cu(1[0-9])([0-9])\b")


def is_script(text: str) -> bool:
    """Whether a text installs packages rather than listing them."""
    return any(_PIP_INSTALL.search(it) or _CONDA_INSTALL.search(it) for it in _commands(text))


def read_script(text: str) -> Listing:
    """Read every install command; a later one replaces what an earlier one said of a package."""
    found: dict[str, Listed] = {}
    unread: list[str] = []
    replaced: list[str] = []
    for package in _installed(text, unread):
        before = found.get(package.name)
        if before and before.version and package.version and before.version != package.version:
            replaced.append(f"{package.name} {before.version} is replaced by {package.version} further down")
        if before is None or package.version or package.vcs or not before.version:
            found[package.name] = package
    python = _PYTHON.search(text)
    cuda = _CUDA.search(text)
    return Listing(
        kind="install script",
        packages=tuple(found.values()),
        complete=False,
        python=next((it for it in python.groups() if it), None) if python else None,
        cuda=f"{cuda[1]}.{cuda[2]}" if cuda else None,
        notes=tuple(replaced),
        unread=tuple(unread),
    )


def _commands(text: str) -> Iterator[str]:
    """Yield each simple command, continued lines joined, comments gone, Dockerfile's RUN taken off."""
    joined = re.sub(r"\\\r?\n", " ", text)
    for line in joined.splitlines():
        bare = re.sub(r"(^|\s)#.*$", "", line)
        bare = re.sub(r"^\s*RUN\s+(--\S+\s+)*", "", bare)
        yield from (it.strip() for it in _SPLIT.split(_hide_quoted(bare)) if it.strip())


def _hide_quoted(text: str) -> str:
    """Keep separators inside quotes from splitting a command: `"numpy<2;python_version<'3.13'"`."""
    return re.sub(r"\"[^\"]*\"|'[^']*'", lambda it: it[0].replace(";", "\x00").replace("|", "\x01"), text)


def _installed(text: str, unread: list[str]) -> Iterator[Listed]:
    """Yield what each install command names."""
    for command in _commands(text):
        plain = command.replace("\x00", ";").replace("\x01", "|")
        if pip := _PIP_INSTALL.search(plain):
            for word in _words(pip["words"]):
                yield from _of_word(word, unread)
        elif conda := _CONDA_INSTALL.search(plain):
            for word in _words(conda["words"]):
                yield from parse_spec(word, unread)


def _words(text: str) -> Iterator[str]:
    """Yield the arguments that are no options; an option's value is none."""
    try:
        words = shlex.split(text)
    except ValueError:  # an open quote: the script is cut off
        words = text.split()
    skip = False
    for word in words:
        if skip or word.startswith("-"):
            skip = not skip and word in _WITH_VALUE
        elif not re.match(r"[0-9]?>", word):
            yield word


def _of_word(word: str, unread: list[str]) -> Iterator[Listed]:
    """Yield the package of one argument; folders and variables cannot be read."""
    folder = word.startswith((".", "/", "~")) and not word.endswith((".whl", ".tar.gz"))
    if folder or "$" in word:
        unread.append(shown(f"pip install {word}"))
    else:
        yield from parse_line(word, unread)
