"""`python describe.py`: what an environment's Python is to a compiler, as JSON. torch is looked up, not imported."""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import runpy
import sysconfig


def torch_says() -> dict[str, object]:
    """Return torch's own words for its version and its CUDA; nothing where there is no torch."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return {}
    values = runpy.run_path(os.path.join(os.path.dirname(spec.origin), "version.py"))
    return {"torch": values.get("__version__"), "cuda": values.get("cuda")}


def headers() -> str | None:
    """Return the folder of Python.h: Python's own, or one that the compilers' variables name."""
    folders = [sysconfig.get_path("include")]
    for variable in ("CPATH", "CPLUS_INCLUDE_PATH"):
        folders += filter(None, os.environ.get(variable, "").split(os.pathsep))
    return next((it for it in folders if os.path.isfile(os.path.join(it, "Python.h"))), None)


def main() -> None:
    """Print it."""
    says = {
        "python": ".".join(platform.python_version_tuple()[:2]),
        "machine": platform.machine(),
        "headers": headers(),
        **torch_says(),
    }
    print(json.dumps(says))


if __name__ == "__main__":
    main()
