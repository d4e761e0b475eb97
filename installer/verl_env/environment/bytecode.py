"""Bytecode, compiled once for each wheel and Python on this machine, and linked into every environment with that wheel.

uv compiles everything anew in each environment, which costs more than all the rest of a warm installation. The bytecode
is `checked-hash` (PEP 552): it holds the hash of its source, which is compared when it is linked and before Python runs
it. What is kept is named by the wheel's sha256 and the exact Python.
"""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from verl_env import output, paths, process, uv
from verl_env.errors import InstallError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from verl_env.matrix.pins import Pin

_CHILD = Path(__file__).with_name("bytecode_child.py")


def provide_bytecode(folder: Path, pins: Iterable[Pin], python: str, *, again: Sequence[str] = ()) -> None:
    """Give every package its bytecode: linked where it was compiled before, else compiled; `again` is compiled anew.

    Raises InstallError with the child's last words, on a full disk say.
    """
    (site,) = folder.glob("lib/python*/site-packages")
    store = paths.home() / "cache" / "bytecode" / python
    store.mkdir(parents=True, exist_ok=True)
    pins = tuple(pins)
    for pin in pins:
        if pin.name in again:
            shutil.rmtree(store / pin.sha256, ignore_errors=True)
    # An sdist is built here, and not to the same bytes each time.
    keys = {f"{pin.name} {pin.version}": pin.sha256 for pin in pins if not pin.is_sdist}
    order = {"site": str(site), "store": str(store), "keys": keys, "cores": len(os.sched_getaffinity(0))}
    argv: list[str | Path] = [folder / "bin" / "python", "-I", "-S", _CHILD]
    done = process.run(argv, stdin=json.dumps(order), pass_fds=tuple(uv.held_locks))
    if done.returncode != 0:
        hint = (
            "free some space, or name another folder: --home DIR" if "No space left" in done.stderr else "run it again"
        )
        raise InstallError("the bytecode could not be compiled", details=done.tail(), hint=hint)
    count = Counter(json.loads(done.stdout))
    output.note(f"bytecode: {count['linked']} modules linked, {count['compiled']} compiled")


def drop_unused() -> int:
    """Remove what no environment has any more; return the bytes that it freed."""
    freed = 0
    for kept in (paths.home() / "cache" / "bytecode").glob("*/*"):
        files = [Path(base) / name for base, _, names in os.walk(kept) for name in names if name.endswith(".pyc")]
        if all(it.lstat().st_nlink == 1 for it in files):
            freed += sum(it.lstat().st_blocks * 512 for it in files)
            shutil.rmtree(kept, ignore_errors=True)
    return freed
