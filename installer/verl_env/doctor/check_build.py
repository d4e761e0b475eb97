"""What compiles at run time: a C compiler, Python's headers, ninja, nvcc of the environment's CUDA."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from verl_env.doctor.check_room import temporary_folder, write_fault
from verl_env.doctor.known import found

if TYPE_CHECKING:
    from collections.abc import Iterator

    from verl_env.doctor.situation import Situation
    from verl_env.node.facts import Finding

_PROGRAM = "#include <stdint.h>\n#include <stdlib.h>\nint main(void) { return (int)(intptr_t)NULL; }\n"
_SECONDS = 1.2


def check_build(situation: Situation) -> Iterator[Finding]:
    """Yield what is missing to compile kernels and their helpers."""
    yield from _compiler(situation)
    subject = situation.subject
    if subject is None:
        return
    include = subject.answers.get("include")
    if include and not os.path.exists(os.path.join(include, "Python.h")):
        evidence = f"no {include}/Python.h (Python {subject.answers['version']} at {subject.python})"
        action = "use a Python that brings its headers (`uv python install`), or have pythonX.Y-dev installed"
        yield found("python-headers", evidence, action)
    if subject.cuda:
        yield from _for_kernels(situation)


def _compiler(situation: Situation) -> Iterator[Finding]:
    """Look for the compiler that Triton takes (CC, gcc, clang), and let it compile three lines."""
    host = situation.host
    named = situation.environ.get("CC")
    program = host.which(named) if named else next((it for name in ("gcc", "clang") if (it := host.which(name))), None)
    if program is None:
        evidence = f"CC=`{named}` is not found" if named else "neither gcc nor clang on PATH"
        yield found("no-compiler", evidence, "have gcc installed (and g++), or set CC to a compiler")
        return
    if write_fault(temporary_folder(situation), sync=False):
        return  # the finding of the room's area: no compiler can do without a temporary folder
    with tempfile.TemporaryDirectory(prefix="verl-env-doctor-") as folder:
        source = Path(folder) / "probe.c"
        source.write_text(_PROGRAM, encoding="ascii")
        done = host.run([program, source, "-o", Path(folder) / "probe"], limit=_SECONDS if not situation.deep else 20)
    if done.timed_out:
        evidence = f"build: {program} did not compile three lines within {done.seconds:.2g} s"
        yield found("probe-timed-out", evidence, "`verl-env doctor --only build --deep` waits longer")
    elif done.returncode:
        said = [line for line in done.stderr.splitlines() if "error" in line] or done.tail(2)
        evidence = f"{program}: {' '.join(said)[:300]}"
        yield found("compiler-broken", evidence, "have libc's headers installed (libc6-dev, glibc-devel)")


def _for_kernels(situation: Situation) -> Iterator[Finding]:
    """Look for ninja and nvcc, which flashinfer's and torch's JIT call."""
    subject = situation.subject
    if subject is None or not subject.cuda:
        return
    jit = subject.version_of("flashinfer-python")
    if not jit:
        return
    if not situation.host.which("ninja") and not (subject.folder / "bin" / "ninja").exists():
        evidence = f"no ninja on PATH, nor in {subject.folder}/bin; flashinfer-python {jit} is installed"
        yield found("no-ninja", evidence, "install ninja into the environment")
    cuda = subject.cuda
    exported = subject.receipt and any(it.name == "CUDA_HOME" and it.value for it in subject.receipt.exports)
    named = situation.environ.get("CUDA_HOME") or situation.environ.get("CUDA_PATH")
    fits = [it for it in situation.node.toolkits if it.version and f"{it.version}.".startswith(f"{cuda}.")]
    if not exported and not fits and not (named and os.path.exists(os.path.join(named, "bin", "nvcc"))):
        others = ", ".join(f"{it.version} at {it.path}" for it in situation.node.toolkits if it.version)
        evidence = f"torch is built for CUDA {cuda}; toolkits here: {others or 'none'}"
        cached = subject.version_of("flashinfer-jit-cache")
        action = (
            f"have the CUDA {cuda} toolkit installed and set CUDA_HOME to it, or install flashinfer-jit-cache {jit}"
        )
        if not cached:
            yield found("cuda-home-missing", evidence, action)
