"""An installation that was asked for before: what is there answers at once, without looking at the node again.

The answer holds for the very same words, variables, matrix, lockfile, boot, driver and Pythons; anything else, and
everything is looked at as if nothing were remembered. Start-up is felt here: nothing heavy is imported.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verl_env import __version__, paths
from verl_env.environment.attention import attention_lines
from verl_env.output import Result

if TYPE_CHECKING:
    from collections.abc import Iterator

NEXT_STEPS = 'use it: eval "$(verl-env env)"   or: verl-env run -- python …'
_RECEIPT = "verl-env-receipt.json"
_MOST = 20  # answers that are kept
# Options under which more decides than what `_key` sees.
_NEVER = ("--dry-run", "--base", "--bundle", "--mirror", "--no-switch", "--help", "-h", "--editable")
_SAYING = ("--json", "-q", "--quiet", "-v", "--verbose")  # they change how an answer is said, not what it is
_VARIABLES = ("PATH", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "HOME", "HF_HOME")
_NODE = ("/proc/sys/kernel/random/boot_id", "/proc/driver/nvidia/version")


def answer(words: list[str]) -> Result | None:
    """Return what an earlier installation with these words found, when it still stands and is current."""
    if _cannot(words):
        return None
    home = _home(words)
    try:
        name = _read(home)[_key(words)]
        folder = home / "environments" / name
        receipt = json.loads((folder / _RECEIPT).read_text(encoding="utf-8"))
        current = os.path.join(home, os.readlink(home / "current")) == str(folder)
        repaired = any(folder.parent.glob(f"{name.partition('.')[0]}.*[0-9]"))
        if not current or receipt["name"] != name or (repaired and "." not in name):
            return None
        lines = [f"{receipt['title']} is already there, and current: {folder}"]
        lines += [*attention_lines(receipt.get("attention"), receipt["settings"]), NEXT_STEPS]
        data = {"folder": str(folder), "current": str(home / "current"), "receipt": receipt, "changed": False}
        return Result(data=data, text="\n".join(lines))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def remember(words: list[str], result: Result) -> None:
    """Keep what an installation ended with; a place that cannot be written is no reason to fail."""
    folder = result.data.get("folder")
    if _cannot(words) or not folder or result.exit_code != 0:
        return
    from verl_env.files import write_atomically

    home = _home(words)
    known = _read(home)
    key = _key(words)
    name = Path(folder).name
    if known.get(key) == name:
        return
    known.pop(key, None)
    known[key] = name
    kept = dict(list(known.items())[-_MOST:])
    try:
        write_atomically(home / "answers.json", json.dumps(kept, indent=2) + "\n")
    except OSError:
        return


def _cannot(words: list[str]) -> bool:
    asked = {word.split("=", 1)[0] for word in words}
    return bool(asked & set(_NEVER)) or any(os.environ.get(_variable(option)) for option in _NEVER)


def _variable(option: str) -> str:
    return "VERL_ENV_" + option.lstrip("-").replace("-", "_").upper()


def _home(words: list[str]) -> Path:
    """Return the home that these words name."""
    for at, word in enumerate(words):
        if word == "--home" and at + 1 < len(words):
            return Path(os.path.abspath(os.path.expanduser(words[at + 1])))
        if word.startswith("--home="):
            return Path(os.path.abspath(os.path.expanduser(word.removeprefix("--home="))))
    return paths.home()


def _read(home: Path) -> dict[str, str]:
    try:
        plain = json.loads((home / "answers.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return plain if isinstance(plain, dict) else {}


def _key(words: list[str]) -> str:
    """Return a digest of everything that decided the answer."""
    parts: list[Any] = [__version__, [word for word in words if word not in _SAYING], os.getcwd(), list(os.uname())]
    parts += sorted(pair for pair in os.environ.items() if pair[0].startswith("VERL_ENV_") or pair[0] in _VARIABLES)
    parts += [_text(place) for place in _NODE]
    parts.append(sorted(_names("/proc/driver/nvidia/gpus")))
    parts += list(_states(words))
    return hashlib.sha256(json.dumps(parts, ensure_ascii=True).encode()).hexdigest()


def _states(words: list[str]) -> Iterator[tuple[str, int, int]]:
    """Yield name, size and mtime of matrices' files, of words that are files, and of where Pythons and wheels live."""
    folders = [Path(__file__).parents[1] / "matrices", Path(__file__).parents[3] / "matrices"]
    folders += [Path(word) for word in (*words, os.environ.get("VERL_ENV_MATRIX", "")) if word and os.path.isdir(word)]
    for folder in folders:
        for inner in (folder, folder / "rows", folder / "pins"):
            for entry in sorted(os.scandir(inner), key=lambda it: it.name) if inner.is_dir() else ():
                about = entry.stat()
                yield entry.path, about.st_size, about.st_mtime_ns
    places = ["/usr/bin", "/usr/local/bin", os.path.expanduser("~/.local/share/uv/python")]
    places += [os.path.expanduser("~/.pyenv/versions"), *(word for word in words if os.path.isfile(word))]
    places.append(os.environ.get("VERL_ENV_WHEELHOUSE") or str(_home(words) / "wheelhouse"))
    for place in places:
        try:
            about = os.stat(place)
        except OSError:
            continue
        yield place, about.st_size, about.st_mtime_ns


def _text(place: str) -> str:
    try:
        return Path(place).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _names(place: str) -> list[str]:
    try:
        return os.listdir(place)
    except OSError:
        return []
