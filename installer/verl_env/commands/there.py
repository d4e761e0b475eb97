"""What a target has already: a Python, an environment, or a list that was written there."""

from __future__ import annotations

from pathlib import Path

from verl_env.environment.base import read_base
from verl_env.environment.receipt import find_environment
from verl_env.errors import UsageError
from verl_env.lock.already import parse_freeze


def versions_at(given: str) -> dict[str, str]:
    """Return versions by name; `given` is a Python, the folder of an environment, its name, or a freeze file."""
    path = Path(given).expanduser()
    if path.is_dir() or (path.is_file() and path.name.startswith("python")):
        return dict(read_base(python_of(path)).versions)
    if path.is_file():
        try:
            return parse_freeze(path.read_text(encoding="utf-8"), given)
        except (OSError, UnicodeDecodeError) as err:
            raise UsageError(f"`{given}` cannot be read: {err}", hint="write it with `pip freeze`") from err
    folder, _ = find_environment(given)
    return dict(read_base(folder / "bin" / "python").versions)


def python_of(path: Path) -> Path:
    """Return the Python of a virtual environment's folder, or the Python that was named."""
    return path / "bin" / "python" if path.is_dir() else path
