"""A lock in the forms of other tools: hashed requirements and constraints. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verl_env.lock.build import hashed_requirements

if TYPE_CHECKING:
    from collections.abc import Iterator

    from verl_env.lock.lockfile import Lock
    from verl_env.matrix.pins import Pin


def render_requirements(lock: Lock) -> str:
    """Return hashed requirements, which pip and uv install with `--no-deps --require-hashes`."""
    how = "Install with `pip install --no-deps --require-hashes -r FILE`, or `uv pip sync FILE`"
    return "".join(f"# {line}\n" for line in _head(lock, how)) + hashed_requirements(in_order(lock))


def render_constraints(lock: Lock) -> str:
    """Return exact versions, for `pip install -c` and `uv pip compile -c`; they hold no hashes."""
    how = "Use with `pip install -c FILE …` or `uv pip compile -c FILE …`; versions only, no hashes"
    lines = "".join(f"{pin.name}=={pin.version}\n" for pin in in_order(lock))
    return "".join(f"# {line}\n" for line in _head(lock, how)) + lines


def in_order(lock: Lock) -> tuple[Pin, ...]:
    """Return the pins by name, as every form lists them."""
    return tuple(sorted(lock.pins, key=lambda pin: (pin.name, pin.file)))


def _head(lock: Lock, how: str) -> Iterator[str]:
    """Say what the list is, and what it cannot say itself."""
    table = lock.table
    yield f"{table.title} (row {table.row}); CPython {table.python}, Linux {table.arch}"
    yield f"{table.digest}, written by verl-env"
    yield how
    if table.driver:
        yield f"Needs NVIDIA driver >= {table.driver} (CUDA {table.cuda})" + (
            f" and glibc >= {table.glibc}" if table.glibc else ""
        )
    if table.build:
        built = ", ".join(pin.name for pin in lock.pins if pin.is_sdist)
        yield f"Built from source: {built}, with {', '.join(f'{it.name}=={it.version}' for it in table.build)}"
    for source in sorted(set(table.sources.values())):
        names = ", ".join(name for name, symbol in sorted(table.sources.items()) if symbol == source)
        yield f"Not on the default index, but on `{source}`: {names}"
    if table.editable:
        yield f"Over it goes the checkout at `{table.editable.path}`: pip install --no-deps -e {table.editable.path}"
