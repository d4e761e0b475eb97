"""`python build_wheel.py BACKEND OUT [FOLDER…]`: one PEP 517 `build_wheel`, in the source tree, by this Python.

Run by an environment's own Python, so that what is compiled is compiled against its torch. FOLDERs are the
back end's own (`backend-path`). When its parent dies, it ends with every compiler that it started.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # prctl(2)


def end_with_parent() -> None:
    """Have the kernel say when the parent dies, however it dies; then the whole session goes, compilers too."""

    def end(_signal: int, _frame: object) -> None:
        for program in _others_of_session():
            with contextlib.suppress(ProcessLookupError):
                os.kill(program, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    signal.signal(signal.SIGTERM, end)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _others_of_session() -> list[int]:
    """Return the other programs of this session, parents first: ninja, which starts new ones, before its compilers."""
    found = []
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", encoding="ascii", errors="replace") as stream:
                session = stream.read().rpartition(")")[2].split()[3]
        except OSError:
            continue
        if int(session) == os.getsid(0) and int(name) != os.getpid():
            found.append(int(name))
    return sorted(found)


def main() -> None:
    """Build one wheel and print its name last."""
    backend, out, *folders = sys.argv[1:]
    end_with_parent()
    # Not this script's own folder, which holds other modules; a back end's folder comes before what is installed.
    sys.path[0:1] = [os.path.abspath(folder) for folder in folders]
    module, _, attribute = backend.partition(":")
    made = importlib.import_module(module)
    for name in filter(None, attribute.split(".")):
        made = getattr(made, name)
    print(made.build_wheel(out), flush=True)


if __name__ == "__main__":
    main()
