"""`verl-env doctor` as tests call it, and the faults of a machine that are brought about around it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tiny import Done

# Run in a mount namespace of its own: a folder whose file system never answers, as that of a dead NFS server.
DEAD = """
import ctypes, os, subprocess, sys
folder, *words = sys.argv[1:]
_, end = os.pipe()
options = f"fd={end},pgrp={os.getpgrp()},minproto=5,maxproto=5,direct".encode()
if ctypes.CDLL(None, use_errno=True).mount(b"dead", folder.encode(), b"autofs", 0, options):
    sys.exit(77)
os.close(end)  # the reading end stays open, and nobody reads what the kernel asks
sys.exit(subprocess.call(words, start_new_session=True))
"""
_NO_SUCH_MOUNT = 77


def ids(done):
    """Return the findings' ids of a call with --json."""
    return [finding["id"] for finding in done.json["data"]["findings"]]


def of(done, finding_id):
    """Return one finding."""
    return next(finding for finding in done.json["data"]["findings"] if finding["id"] == finding_id)


def doctor(tool, *words, **variables):
    """Run doctor, patient: the machine that runs tests may be busy."""
    return tool("doctor", "--json", "--deep", *words, **variables)


def doctor_within(tool, before, *words, **variables):
    """Run doctor, patient, after some other program's words."""
    argv = [*before, sys.executable, "-m", "verl_env", "doctor", "--json", "--deep", *words]
    child = subprocess.run(argv, env=tool.variables(**variables), capture_output=True, text=True, check=False)
    return Done(child.returncode, child.stdout, child.stderr)


def as_somebody():
    """Return the words that run a program to which permissions apply, as they do not to root."""
    if os.geteuid() != 0:
        return []
    words = ["setpriv", "--bounding-set", "-dac_override"]
    if shutil.which("setpriv") is None or subprocess.run([*words, "true"], check=False).returncode:
        pytest.skip("root may write everywhere, and no setpriv is here")
    return words


def in_mounts(script):
    """Return the words that run a program after a script in a mount namespace; skip where there is none to have."""
    unshare = shutil.which("unshare")
    words = [unshare or "unshare", *([] if os.geteuid() == 0 else ["--map-root-user"]), "--mount"]
    if unshare is None or subprocess.run([*words, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this user may not make a mount namespace")
    return [*words, "sh", "-ec", f'{script}; exec "$@"', "sh"]


def with_dead_folder(folder):
    """Return the words that run a program while a folder's file system never answers."""
    words = [*in_mounts(":"), sys.executable, "-c", DEAD, str(folder)]
    if subprocess.run([*words, "true"], capture_output=True, check=False).returncode == _NO_SUCH_MOUNT:
        pytest.skip("this kernel has no autofs")
    return words


@contextlib.contextmanager
def memory_group(limit):
    """Make a cgroup that allows so many bytes, and end who is left in it; skip where that is not allowed."""
    own = next((it for it in Path("/proc/self/cgroup").read_text().splitlines() if ":memory:" in it), "")
    folder = Path("/sys/fs/cgroup/memory", own.rpartition(":")[2].lstrip("/"), f"verl-env-test-{os.getpid()}")
    try:
        folder.mkdir()
        (folder / "memory.limit_in_bytes").write_text(str(limit))
    except OSError:
        pytest.skip("this user may not make a cgroup")
    yield folder
    while folder.exists():
        for pid in (folder / "cgroup.procs").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        with contextlib.suppress(OSError):  # busy until the last of them is gone
            folder.rmdir()


def in_group(folder):
    """Return the words that run a program in a cgroup."""
    return ["sh", "-ec", f'echo $$ > {folder}/cgroup.procs; exec "$@"', "sh"]


def said_by_venv(**answers):
    """Return what the Python of a laid-out environment says of itself."""
    laid = {"version": "3.11.2", "prefix": "/p", "base": "/p", "include": "/usr/include", "shared": False}
    return json.dumps({**laid, "library": "", "libdir": "", **answers})


def made_venv(tmp_path, answers, script=None):
    """Lay out a venv whose Python is a script that answers what it is told."""
    folder = tmp_path / "venv"
    (folder / "bin").mkdir(parents=True)
    (folder / "lib/python3.11/site-packages").mkdir(parents=True)
    (folder / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.11.2\n")
    program = folder / "bin/python"
    program.write_text(f"#!/bin/sh\n{script or f'echo {json.dumps(answers)!s}'}\n")
    program.chmod(0o755)
    return folder


def distribution(folder, name, version, *requires):
    """Lay a distribution's metadata into a venv."""
    info = folder / f"lib/python3.11/site-packages/{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    lines = [f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {it}" for it in requires)]
    (info / "METADATA").write_text("Metadata-Version: 2.1\n" + "\n".join(lines) + "\n")
