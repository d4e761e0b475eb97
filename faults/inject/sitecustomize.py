"""Loaded by a Python whose path leads here: kill this process at its N-th step that touches the file system.

FAULT_LOG names a file that gets one line a step; FAULT_AT is the number of the step to die before, uncaught and
unhandled (SIGKILL). Steps are CPython's own audit events, so that a kill falls between any two changes that verl-env
itself makes; what uv and other children do is not counted.
"""

import os
import signal
import sys

_STEPS = (
    "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.symlink", "os.link", "os.chmod", "os.truncate",
    "fcntl.flock", "shutil.rmtree", "subprocess.Popen", "tempfile.mkstemp",
)  # fmt: skip


def _install(at, log):
    count = 0
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644) if log else None

    def hook(event, arguments):
        nonlocal count
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if not writes and event not in _STEPS:
            return
        count += 1
        if handle is not None:
            # A list of words for Popen; a path for the others.
            what = " ".join(map(str, arguments[1][:4])) if event == "subprocess.Popen" else str(arguments[0])
            os.write(handle, f"{count} {event} {what}\n".encode(errors="replace"))
        if count == at:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


if os.environ.get("FAULT_AT") or os.environ.get("FAULT_LOG"):
    _install(int(os.environ.get("FAULT_AT", "0")), os.environ.get("FAULT_LOG"))
