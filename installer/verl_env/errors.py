"""Every error a user can meet: one class a kind, each with its name and exit code."""

from __future__ import annotations

from typing import Any, ClassVar


class VerlEnvError(Exception):
    """What happened, and the one thing to do about it.

    `code` is the stable name in `--json`, `exit_code` what the process returns. `details` are lines of
    evidence shown below the message: argv, the tail of a log, the rows that were tried. `said` is all that the failed
    step wrote, to be held against the known failures. `data` is what a command had found out by then, for `--json`.
    """

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 70

    def __init__(self, message: str, *, hint: str = "", details: tuple[str, ...] = ()) -> None:
        """Keep the message, its hint and its evidence apart: `--json` shows each under its own key."""
        super().__init__(message)
        self.data: dict[str, Any] = {}
        self.said = ""
        self.message = message
        self.hint = hint
        self.details = details


class UsageError(VerlEnvError):
    """An argument, variable or settings file that cannot be understood."""

    code = "usage"
    exit_code = 2


class MatrixError(VerlEnvError):
    """A matrix folder whose files do not hold together; `details` has every fault."""

    code = "matrix"
    exit_code = 9


class NoDeviceError(VerlEnvError):
    """No usable GPU or driver where one is needed, or an accelerator that is not covered."""

    code = "no-device"
    exit_code = 3


class NoRowError(VerlEnvError):
    """No row of the matrix fits; `details` has each row and why it fell."""

    code = "no-row"
    exit_code = 4


class ResolveError(VerlEnvError):
    """uv could not resolve, or an index did not have what the pins name."""

    code = "resolve"
    exit_code = 5


class LockError(VerlEnvError):
    """A lockfile that cannot be read, does not hold together or is not for this node."""

    code = "lock"
    exit_code = 10


class InstallError(VerlEnvError):
    """The environment could not be built; the one in use is as it was."""

    code = "install"
    exit_code = 6


class PreflightError(InstallError):
    """Something that would have stopped the installation, seen before the first byte."""

    code = "preflight"
    exit_code = 11


class BusyError(InstallError):
    """Another verl-env is at work on the same environment, and did not end within the time limit."""

    code = "busy"
    exit_code = 13


class SmokeError(VerlEnvError):
    """The environment was built, and its imports failed; it does not become current."""

    code = "smoke"
    exit_code = 7


class NoEnvironmentError(VerlEnvError):
    """No environment by that name, or none is current."""

    code = "no-environment"
    exit_code = 12


class EngineError(VerlEnvError):
    """A cluster's engine (Ray, Slurm) cannot be reached, or refused; nothing was changed on any node."""

    code = "engine"
    exit_code = 14


class Interrupted(VerlEnvError):  # noqa: N818 - nothing went wrong
    """Ctrl-C or SIGTERM: children were ended, and what was being built is gone or finished by a rerun."""

    code = "interrupted"
    exit_code = 130
