"""Where a Python keeps its packages, found by how folders are laid out; nothing of it is run. An edge."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from verl_env.errors import UsageError

_LIB = re.compile(r"python(3\.[0-9]+)t?")
_PATCHLEVEL = re.compile(r'#define\s+PY_VERSION\s+"([^"]+)"')
_VERSION = re.compile(r"3\.[0-9]+\.[0-9]+")
_HINT = "name a virtual environment, a conda environment or a Python, such as .venv or /usr/bin/python3"


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """One environment: its `prefix`, the kind of thing it is, and the folders that its packages lie in, first wins.

    `kind` is `venv`, `conda` or `system`. `python` is exact where something says so, else the minor. `base` is the
    prefix of the Python that a venv was made with. `startup` are .pth files with code that Python would run.
    """

    prefix: Path
    kind: str
    python: str
    folders: tuple[Path, ...]
    base: Path | None = None
    startup: tuple[str, ...] = ()


def find_layout(given: str | None) -> Layout:
    """Find the environment that a folder or a Python's path stands for; None is the one that is active."""
    place = Path(given or _active()).expanduser()
    if not os.path.lexists(place):
        raise UsageError(f"no environment at `{place}`", hint=_HINT)
    if place.is_file():
        place = _prefix_of_python(place)
    if not place.is_dir():
        raise UsageError(f"`{place}` is no environment", hint=_HINT)
    return _layout(place.absolute())


def _active() -> str:
    """Return the active environment, as the shell says, else the `python3` on PATH."""
    import shutil

    named = os.environ.get("VIRTUAL_ENV") or os.environ.get("CONDA_PREFIX") or shutil.which("python3")
    if named is None:
        raise UsageError("no environment is active, and no python3 is on PATH", hint=_HINT)
    return named


def _prefix_of_python(program: Path) -> Path:
    """Return the prefix of a Python: its venv's folder, else the one above the `bin` that it really lies in."""
    own = program.absolute().parent.parent
    if (own / "pyvenv.cfg").is_file() or (own / "conda-meta").is_dir():
        return own
    if not re.fullmatch(r"(python|pypy)[0-9.]*t?", program.name):
        raise UsageError(f"`{program}` is neither a Python nor a list of packages", hint=_HINT)
    return program.resolve().parent.parent


def _layout(prefix: Path) -> Layout:
    settings = _settings(prefix / "pyvenv.cfg")
    base = Path(settings["home"]).parent if settings.get("home") else None
    kind = "venv" if settings else "conda" if (prefix / "conda-meta").is_dir() else "system"
    minor, folders = _folders(prefix)
    if settings.get("include-system-site-packages", "").lower() == "true" and base:
        folders += _folders(base)[1]
    if not folders or minor is None:
        raise UsageError(f"`{prefix}` holds no Python packages", hint=_HINT)
    added, startup = _pth_files(folders)
    return Layout(
        prefix=prefix,
        kind=kind,
        python=_exact(prefix, base, settings, minor) or minor,
        folders=(*folders, *added),
        base=base,
        startup=startup,
    )


def _settings(path: Path) -> dict[str, str]:
    """Read a pyvenv.cfg: `key = value` lines."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {key.strip().lower(): value.strip() for key, _, value in pairs}


def _folders(prefix: Path) -> tuple[str | None, tuple[Path, ...]]:
    """Return the newest Python minor of a prefix and its package folders, in the order of sys.path."""
    names = [it.name for lib in ("lib", "lib64") for it in _listed(prefix / lib)]
    names += [it.name for it in _listed(prefix / "local" / "lib")]
    minors = {found[1] for name in names if (found := _LIB.fullmatch(name))}
    candidates = sorted(minors, key=lambda it: int(it.split(".")[1]), reverse=True)
    for minor in candidates:
        places = [
            prefix / "local" / "lib" / f"python{minor}" / "dist-packages",  # Debian's pip
            prefix / "lib" / f"python{minor}" / "site-packages",
            prefix / "lib64" / f"python{minor}" / "site-packages",
            prefix / "lib" / f"python{minor}t" / "site-packages",
            prefix / "lib" / "python3" / "dist-packages",  # Debian's own packages
        ]
        there = tuple(dict.fromkeys(it.resolve() for it in places if it.is_dir()))
        if there:
            return minor, there
    return None, ()


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _exact(prefix: Path, base: Path | None, settings: dict[str, str], minor: str) -> str | None:
    """Return the exact version: what the venv, conda or the C headers of the base say."""
    said = [settings.get("version_info", ""), settings.get("version", "")]
    for place in (prefix, base):
        if place is None:
            continue
        said += [
            it.name.removeprefix("python-") for it in _listed(place / "conda-meta") if it.name.startswith("python-3")
        ]
        try:
            text = (place / "include" / f"python{minor}" / "patchlevel.h").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        said += [found[1] for found in [_PATCHLEVEL.search(text)] if found]
    exact = (found[0] for text in said if (found := _VERSION.match(text)) and found[0].startswith(f"{minor}."))
    return next(exact, None)


def _pth_files(folders: tuple[Path, ...]) -> tuple[tuple[Path, ...], tuple[str, ...]]:
    """Return the folders that .pth files add, and those files whose lines Python would run."""
    added: dict[Path, None] = {}
    startup = []
    for folder in folders:
        for path in _listed(folder):
            if path.suffix != ".pth" or not path.is_file():
                continue
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
            if any(line.startswith(("import ", "import\t")) for line in lines):
                startup.append(path.name)
            for line in lines:
                place = folder / line.strip()
                if line.strip() and not line.startswith(("#", "import")) and place.is_dir():
                    added[place.resolve()] = None
    return tuple(it for it in added if it not in folders), tuple(startup)
