"""Room and limits: shared memory, temporary folder, open files, what a cgroup allows."""

from __future__ import annotations

import os
import resource
import tempfile
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from verl_env.doctor.known import found
from verl_env.output import human_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from verl_env.doctor.situation import Situation
    from verl_env.node.facts import Finding

_SHM_LEAST = 1_000_000_000  # NCCL wants about 10 MB a GPU and channel, Ray's store and data loaders gigabytes
_SHM_FREE = 100_000_000
_TMP_FREE = 2_000_000_000
_TMP_FREE_INODES = 10_000
_CACHE_FREE = 5_000_000_000
_OPEN_FILES = 4096  # Ray's own advice is 65536; below this it fails for real
_HALF = 0.5


def check_room(situation: Situation) -> Iterator[Finding]:
    """Yield what is too small here."""
    yield from _shared_memory(situation)
    yield from _temporary(situation)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < _OPEN_FILES:
        most = "unlimited" if hard == resource.RLIM_INFINITY else str(hard)
        yield found(
            "open-files-low",
            f"ulimit -n is {soft} (at most {most})",
            f"`ulimit -n {min(65536, hard) if hard > 0 else 65536}`",
        )
    yield from _cgroup(situation)
    yield from _folders(situation)


def _shared_memory(situation: Situation) -> Iterator[Finding]:
    """Look at /dev/shm."""
    path = situation.host.path("/dev/shm")  # noqa: S108 - shared memory, not a temporary file
    try:
        room = os.statvfs(path)
    except OSError as err:
        yield found("shm-small", f"{path}: {err.strerror}", "mount a tmpfs there", severity="error")
        return
    total, free = room.f_blocks * room.f_frsize, room.f_bavail * room.f_frsize
    container = situation.node.container
    action = {
        None: "mount -o remount,size=50% /dev/shm (an administrator's)",
        "kubernetes": "mount an emptyDir of medium Memory at /dev/shm in the pod",
    }.get(container.name if container else None, "start the container with --shm-size=16g or --ipc=host")
    if total < _SHM_LEAST:
        yield found("shm-small", f"{path} has {human_bytes(total)} in all", action)
    elif free < _SHM_FREE:
        yield found(
            "shm-full",
            f"{path}: {human_bytes(free)} of {human_bytes(total)} free",
            "remove what dead processes of yours left there (`ls -l /dev/shm`)",
        )


def temporary_folder(situation: Situation) -> Path:
    """Return the folder that most programs take for temporary files."""
    return Path(situation.environ.get("TMPDIR") or situation.host.path("/tmp"))  # noqa: S108 - that is the question


def _temporary(situation: Situation) -> Iterator[Finding]:
    """Look at the temporary folder, by writing where it can be written."""
    folder = temporary_folder(situation)
    fault = write_fault(folder, sync=situation.deep)
    if fault:
        yield found(
            "tmp-not-writable", f"{folder}: {fault}", "set TMPDIR to a folder that can be written", severity="error"
        )
        return
    room = os.statvfs(folder)
    free = room.f_bavail * room.f_frsize
    short = f"{human_bytes(free)} free" if free < _TMP_FREE else ""
    if room.f_files and room.f_favail < _TMP_FREE_INODES:
        short = short or f"{room.f_favail} inodes free"
    if short:
        yield found(
            "tmp-full", f"{folder}: {short}", "make room there, or set TMPDIR and RAY_TMPDIR to a short path with room"
        )


def _folders(situation: Situation) -> Iterator[Finding]:
    """Look at what installations write to, as the node's probe saw it: it has a time limit for each."""
    for folder in situation.node.folders:
        fault = folder.error or ("" if folder.writable else "it cannot be written")
        if fault:
            yield found(
                "home-unusable",
                f"{folder.path}: {fault} ({folder.source})",
                "name a folder that can be written with --home (VERL_ENV_HOME) and UV_CACHE_DIR",
                severity="error",
                what=f"the {folder.role} folder cannot be used",
            )
        elif folder.free_bytes is not None and folder.free_bytes < _CACHE_FREE:
            yield found(
                "home-full",
                f"{folder.path}: {human_bytes(folder.free_bytes)} free ({folder.source})",
                "make room, or name another folder with --home",
                what=f"the {folder.role} folder has little room",
            )


def write_fault(folder: Path, *, sync: bool) -> str:
    """Try to write a file that vanishes at once; return why it cannot be done, or nothing.

    With `sync` it goes to the disk or server, which may know of a quota only then; a busy disk takes seconds for that.
    """
    try:
        with tempfile.TemporaryFile(dir=folder, prefix=".verl-env-probe-") as stream:
            stream.write(b"x" * 4096)
            stream.flush()
            if sync:
                os.fsync(stream.fileno())
    except OSError as err:
        return err.strerror or str(err)
    return ""


def memory_limit(situation: Situation) -> tuple[int | None, int | None]:
    """Return the bytes that this process's cgroup allows, and those that the machine has; None when not known."""
    total = None
    for line in (situation.host.read("/proc/meminfo") or "").splitlines():
        if line.startswith("MemTotal:"):
            total = int(line.split()[1]) * 1024
    texts = [situation.host.read(path) or "" for path in limit_files(situation.host.read("/proc/self/cgroup") or "")]
    limits = [int(text) for text in texts if text.strip().isdigit()]
    return min((it for it in limits if total is None or it < total), default=None), total


def limit_files(own: str) -> list[str]:
    """Return the files that may hold a limit for a process, from its /proc/PID/cgroup: each group's above it counts.

    Inside a container the path may be the host's; the topmost folder is then the container's own group.
    """
    files = []
    for line in own.splitlines():
        number, controllers, path = line.split(":", 2)
        if number == "0":
            base, name = "/sys/fs/cgroup", "memory.max"
        elif "memory" in controllers.split(","):
            base, name = "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
        else:
            continue
        groups = PurePosixPath(path)
        files += [f"{base}{str(group).rstrip('/')}/{name}" for group in (groups, *groups.parents)]
    return files


def _cgroup(situation: Situation) -> Iterator[Finding]:
    """Compare what may be used with what there is."""
    limit, total = memory_limit(situation)
    if limit and total and limit < _HALF * total:
        evidence = f"cgroup: {human_bytes(limit)}; the machine has {human_bytes(total)} (/proc/meminfo)"
        yield found(
            "cgroup-memory",
            evidence,
            "ask for more memory in the job or container, or start Ray with --memory and --object-store-memory",
        )
