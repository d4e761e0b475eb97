"""`python load.py FOLDER MODULE…`: import modules of an unpacked wheel into this environment, torch first."""

from __future__ import annotations

import importlib
import sys


def main() -> None:
    """Import each, and say where it came from; the first that does not load ends it with its traceback."""
    folder, *names = sys.argv[1:]
    sys.path[0] = folder
    importlib.import_module("torch")  # its libraries are found through it
    for name in names:
        module = importlib.import_module(name)
        print(f"{name} loads ({getattr(module, '__version__', None) or 'a module without a version'})")


if __name__ == "__main__":
    main()
