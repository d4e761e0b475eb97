"""The only door to subprocesses: a clean environment, a time limit, and the whole group ended with it."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

# What a caller's shell may hold that would change what a child Python, pip or uv does.
_LEAKY = ("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "VIRTUAL_ENV", "CONDA_PREFIX", "__PYVENV_LAUNCHER__")
_LEAKY_PREFIXES = ("PIP_", "UV_")

verbose = False
_live: set[subprocess.Popen[bytes]] = set()  # children that run now, on whatever thread


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """One finished child: `returncode` is negative for a signal, `timed_out` when the limit ended it."""

    argv: tuple[str, ...]
    returncode: int
    stdout: str
    stderr: str
    seconds: float
    timed_out: bool = False

    def tail(self, lines: int = 12) -> tuple[str, ...]:
        """Return the last lines of what it said, stderr before stdout."""
        said = (self.stderr.strip() or self.stdout.strip()).splitlines()
        return tuple(said[-lines:])


def clean_environ(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return this process's variables less those that leak into Python, pip and uv, plus `extra`."""
    kept = {
        name: value for name, value in os.environ.items() if name not in _LEAKY and not name.startswith(_LEAKY_PREFIXES)
    }
    return kept | dict(extra or {})


def run(  # noqa: PLR0913 - each is an option of one call, given by name
    argv: Sequence[str | Path],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout: float | None = None,
    stdin: str | None = None,
    show_stderr: bool = False,
    merge_into: Path | None = None,
    pass_fds: Sequence[int] = (),
) -> Completed:
    """Run one program to its end; never through a shell.

    `env` is the child's whole environment (default: `clean_environ()`). `timeout` is in seconds; when it ends,
    the child's process group is killed, so that no grandchild stays. With `show_stderr` the child's stderr goes
    to ours as it comes (uv draws its own progress there); with `merge_into` both streams go to that file. The
    child keeps `pass_fds` open.
    Raises OSError when the program cannot be started.
    """
    words = [os.fspath(word) for word in argv]
    if verbose:
        from verl_env.indexes import masked

        print(f"+ {masked(shlex.join(words))}", file=sys.stderr)
    started = time.monotonic()
    sink = open(merge_into, "wb") if merge_into else None  # noqa: SIM115 - closed below, with the child
    child: subprocess.Popen[bytes] | None = None
    try:
        child = subprocess.Popen(
            words,
            env=dict(env) if env is not None else clean_environ(),
            cwd=cwd,
            stdin=subprocess.PIPE if stdin is not None else subprocess.DEVNULL,
            stdout=sink or subprocess.PIPE,
            stderr=subprocess.STDOUT if sink else (None if show_stderr else subprocess.PIPE),
            start_new_session=True,
            pass_fds=tuple(pass_fds),
        )
        _live.add(child)
        out, err, timed_out = _wait(child, stdin, timeout)
    finally:
        if child is not None:
            _live.discard(child)
        if sink:
            sink.close()
    return Completed(
        argv=tuple(words),
        returncode=child.returncode,
        stdout=(out or b"").decode(errors="replace"),
        stderr=(err or b"").decode(errors="replace"),
        seconds=time.monotonic() - started,
        timed_out=timed_out,
    )


def _wait(
    child: subprocess.Popen[bytes], stdin: str | None, timeout: float | None
) -> tuple[bytes | None, bytes | None, bool]:
    """Feed and drain the child; kill its group when the limit ends or we are interrupted."""
    try:
        out, err = child.communicate(stdin.encode() if stdin is not None else None, timeout)
    except subprocess.TimeoutExpired:
        _end_group(child)
        out, err = child.communicate()
        return out, err, True
    except BaseException:
        _end_group(child)
        child.wait()
        raise
    return out, err, False


def _end_group(child: subprocess.Popen[bytes]) -> None:
    """Kill the child's own process group; it began one with its session, so nobody else is in it."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def end_all() -> None:
    """Kill every child that runs now: the main thread was interrupted while others wait for theirs."""
    for child in tuple(_live):
        _end_group(child)
