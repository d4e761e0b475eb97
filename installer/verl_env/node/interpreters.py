"""The Pythons of this node, each run to learn what it is and whether it starts at all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from verl_env.node.facts import Interpreter
from verl_env.node.later import map_together
from verl_env.node.python_places import list_candidates

if TYPE_CHECKING:
    from verl_env.node.host import Host
    from verl_env.node.python_places import Candidate
    from verl_env.process import Completed

# Run by every Python 3 that is found, so in the grammar of them all. It prints `name=value` lines. A
# free-threaded build is another implementation to us: its wheels are others.
_SCRIPT = """
import os, sys
v = sys.version_info
pre = {"alpha": "a", "beta": "b", "candidate": "rc"}.get(v.releaselevel)
print("version=%d.%d.%d" % v[:3] + ("%s%d" % (pre, v.serial) if pre else ""))
if v >= (3, 8):
    import sysconfig
    print("implementation=" + sys.implementation.name + ("-freethreaded" if "t" in sys.abiflags else ""))
    print("machine=" + (getattr(sys.implementation, "_multiarch", "").split("-")[0] or os.uname().machine))
    print("base=" + (getattr(sys, "_base_executable", "") or sys.executable))
    print("headers=" + str(os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h"))))
"""
_LIMIT_SECONDS = 5.0


def find_interpreters(host: Host) -> tuple[Interpreter, ...]:
    """Return each Python from 3.8 on once, newest first, those that do not start last."""
    places: dict[Path, list[Candidate]] = {}
    for candidate in list_candidates(host):
        places.setdefault(_base_of(candidate.path), []).append(candidate)
    items = list(places.items())
    ran = map_together(
        lambda item: host.run([item[0], "-I", "-S", "-c", _SCRIPT], limit=_LIMIT_SECONDS),
        items,
        limit=2 * _LIMIT_SECONDS,
    )
    found: dict[Path, Interpreter] = {}
    for (path, candidates), done in zip(items, ran, strict=True):
        interpreter = judge_run(path, candidates, done)
        if interpreter is not None:
            found.setdefault(Path(os.path.realpath(interpreter.path)), interpreter)
    return tuple(sorted(found.values(), key=_newest_first))


def judge_run(path: Path, candidates: list[Candidate], done: Completed | None) -> Interpreter | None:
    """Turn one run into the fact; None for a Python that is too old to matter here."""
    kind = candidates[0].kind
    source = ", ".join(dict.fromkeys(candidate.source for candidate in candidates))
    if done is None or done.timed_out:
        error = f"no answer within {done.seconds if done else 2 * _LIMIT_SECONDS:.1f} s"
        return Interpreter(path=str(path), kind=kind, source=source, error=error)
    said = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    if done.returncode == 0 and "version" in said and "base" not in said:
        return None
    if done.returncode != 0 or "base" not in said:
        words = " ".join(done.tail(1)) or f"ended with status {done.returncode} and no word"
        return Interpreter(path=str(path), kind=kind, source=source, error=words)
    return Interpreter(
        path=os.path.realpath(said["base"]),
        kind=kind,
        source=source,
        version=said["version"],
        implementation=said["implementation"],
        machine=said["machine"],
        starts=True,
        headers=said["headers"] == "True",
    )


def _base_of(path: Path) -> Path:
    """Return the real file of an executable; for a virtual environment of copies, its base interpreter's."""
    real = Path(os.path.realpath(path))
    settings = real.parent.parent / "pyvenv.cfg"
    try:
        text = settings.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return real
    values = {name.strip(): value.strip() for name, _, value in (line.partition("=") for line in text.splitlines())}
    base = Path(values.get("home", "")) / real.name
    return Path(os.path.realpath(base)) if base.is_file() else real


def _newest_first(one: Interpreter) -> tuple[bool, list[int], str]:
    """Sort key: working ones first, then by version downwards, then by path."""
    numbers = [int("".join(filter(str.isdigit, part)) or 0) for part in (one.version or "0").split(".")]
    return not one.starts, [-number for number in numbers], one.path
