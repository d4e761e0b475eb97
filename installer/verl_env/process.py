"""The only door to subprocesses: a clean environment, a time limit, and the whole group ended with it."""

from __future__ import annotations

import contextlib
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


def run(
    argv: Sequence[str | Path],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout: float | None = None,
    stdin: str | None = None,
    show_stderr: bool = False,
    pass_fds: Sequence[int] = (),
) -> Completed:
    """Run one program to its end; never through a shell.

    `env` is the child's whole environment (default: `clean_environ()`). `timeout` is in seconds; when it ends,
    the child's process group is killed, so that no grandchild stays. With `show_stderr` the child's stderr goes
    to ours as it comes (uv draws its own progress there). The child keeps `pass_fds` open.
    Raises OSError when the program cannot be started.
    """
    words = _shown(argv)
    started = time.monotonic()
    child = subprocess.Popen(
        words,
        env=dict(env) if env is not None else clean_environ(),
        cwd=cwd,
        stdin=subprocess.PIPE if stdin is not None else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=None if show_stderr else subprocess.PIPE,
        start_new_session=True,
        pass_fds=tuple(pass_fds),
    )
    out, err, timed_out = _wait(child, stdin, timeout)
    return Completed(
        argv=tuple(words),
        returncode=child.returncode,
        stdout=(out or b"").decode(errors="replace"),
        stderr=(err or b"").decode(errors="replace"),
        seconds=time.monotonic() - started,
        timed_out=timed_out,
    )


@dataclass(slots=True, kw_only=True)
class Running:
    """A child that runs beside others; its output goes to a file. The caller ends it on every way out."""

    child: subprocess.Popen[bytes]
    started: float

    @property
    def seconds(self) -> float:
        """How long it has run."""
        return time.monotonic() - self.started

    def poll(self) -> int | None:
        """Return its exit code when it has ended."""
        return self.child.poll()

    def end(self) -> int:
        """Kill it with its whole group, and return its exit code."""
        _end_group(self.child)
        return self.child.wait()


class Dialogue:
    """A child that is spoken to in lines, and answers in lines; its stderr is kept for when something goes wrong.

    `ended` when its last line was heard.
    """

    def __init__(self, argv: Sequence[str | Path], *, env: Mapping[str, str], merge: bool = False) -> None:
        """Start the child; with `merge` its stderr is heard too. Raises OSError when it cannot be started."""
        import queue
        import threading

        self.ended = False
        self._errors = open(os.memfd_create("stderr"), "w+b")  # noqa: SIM115 - it lives as long as the child
        self._child = subprocess.Popen(
            _shown(argv),
            env=dict(env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if merge else self._errors,
            start_new_session=True,
        )
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._told: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        for work in (self._read, self._write):
            threading.Thread(target=work, daemon=True).start()

    def _read(self) -> None:
        with self._child.stdout as source:  # type: ignore[union-attr]
            for line in source:
                self._lines.put(line.decode(errors="replace"))
        self._lines.put(None)

    def _write(self) -> None:
        with contextlib.suppress(BrokenPipeError), self._child.stdin as sink:  # type: ignore[union-attr]
            while (line := self._told.get()) is not None:
                left = memoryview(line)
                while left:
                    left = left[os.write(sink.fileno(), left) :]

    def tell(self, line: str) -> None:
        """Have one line written; who listens notices a child that is gone, or reads no more."""
        self._told.put(line.encode() + b"\n")

    def hear(self, seconds: float | None) -> str | None:
        """Return the next line; None when the child ended, or said nothing for so many seconds."""
        import queue

        try:
            line = self._lines.get(timeout=seconds)
        except queue.Empty:
            return None
        self.ended = line is None
        return line

    def last_words(self, lines: int = 12) -> tuple[str, ...]:
        """Return the end of its stderr."""
        self._errors.seek(0)
        return tuple(self._errors.read().decode(errors="replace").strip().splitlines()[-lines:])

    def end(self, seconds: float = 20.0) -> bool:
        """Close its stdin, give it some seconds to leave, then kill its group; return whether it left by itself."""
        self._told.put(None)
        try:
            self._child.wait(seconds)
            left = True
        except subprocess.TimeoutExpired:
            _end_group(self._child)
            self._child.wait()
            left = False
        self._errors.close()
        return left


def start(
    argv: Sequence[str | Path],
    *,
    env: Mapping[str, str],
    cwd: Path,
    merge_into: Path,
    append: bool = False,
    pass_fds: Sequence[int] = (),
) -> Running:
    """Start a program whose output, both streams of it, goes to a file; raises OSError when that cannot be done.

    With `append` the file goes on where it ends. The child keeps `pass_fds` open.
    """
    words = _shown(argv)
    with open(merge_into, "ab" if append else "wb") as sink:
        child = subprocess.Popen(
            words,
            env=dict(env),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=tuple(pass_fds),
        )
    return Running(child=child, started=time.monotonic())


def _shown(argv: Sequence[str | Path]) -> list[str]:
    """Return the words of a program, and show them when asked to."""
    words = [os.fspath(word) for word in argv]
    if verbose:
        from verl_env.indexes import masked

        print(f"+ {masked(shlex.join(words))}", file=sys.stderr)
    return words


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
