"""Where things would be written: room, file system and permission, without writing anything."""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from verl_env.node.facts import Folder
from verl_env.node.later import Later

if TYPE_CHECKING:
    from collections.abc import Mapping

    from verl_env.node.host import Host

_NETWORK = frozenset(
    [
        *(
            "nfs",
            "nfs4",
            "lustre",
            "gpfs",
            "beegfs",
            "beegfs_nodev",
            "ceph",
            "glusterfs",
            "cifs",
            "smb3",
            "smbfs",
        ),
        *("afs", "pvfs2", "orangefs", "panfs", "wekafs", "gfs2", "ocfs2", "9p", "virtiofs", "acfs", "daos"),
    ]
)
# File systems in user space are mostly somebody's storage behind a network; these are not.
_LOCAL_FUSE = frozenset(
    f"fuse.{name}" for name in ("fuse-overlayfs", "mergerfs", "bindfs", "lxcfs", "gocryptfs", "ntfs-3g")
)
_POINT = 4  # proc(5): the fifth field is the mount point
_ESCAPE = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """One line of mountinfo."""

    point: str
    kind: str


def parse_mountinfo(text: str) -> tuple[Mount, ...]:
    """Return the mounts in their order; the optional fields end with a lone `-`."""
    mounts = []
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split(" ")
        if len(fields) > _POINT and after:
            point = _ESCAPE.sub(lambda found: chr(int(found[1], 8)), fields[_POINT])
            mounts.append(Mount(point=point, kind=after.split(" ")[0]))
    return tuple(mounts)


def find_mount(path: str, mounts: tuple[Mount, ...]) -> Mount | None:
    """Return the mount a real path lies on: the longest, and of equals the last, which covers the others."""
    best = None
    for mount in mounts:
        point = mount.point.rstrip("/")
        inside = path == point or path.startswith(point + "/")
        if inside and (best is None or len(mount.point) >= len(best.point)):
            best = mount
    return best


def is_network(kind: str) -> bool:
    """Whether a file system of this kind is shared or behind a network."""
    return kind in _NETWORK or (kind.startswith("fuse.") and kind not in _LOCAL_FUSE)


def probe_folders(host: Host, folders: Mapping[str, Path]) -> tuple[Folder, ...]:
    """Look at each role's folder; one on a server that does not answer gets an error and hangs nobody."""
    mounts = parse_mountinfo(host.read("/proc/self/mountinfo") or "")
    started = [(role, path, Later(partial(probe_folder, role, path, mounts))) for role, path in folders.items()]
    until = time.monotonic() + host.patience  # for all of them: two on one dead server cost no more than one
    return tuple(_wait(role, path, mounts, later, until, host.patience) for role, path, later in started)


def _wait(role: str, path: Path, mounts: tuple[Mount, ...], later: Later[Folder], until: float, limit: float) -> Folder:
    """Return the answer, or a folder that says why there is none."""
    try:
        return later.get(max(0.0, until - time.monotonic()))
    except TimeoutError:
        mount = find_mount(str(path.absolute()), mounts)
        error = f"the file system did not answer within {limit:g} s"
    except OSError as err:
        mount, error = None, f"{err.strerror or err}"
    kind = mount.kind if mount else None
    return Folder(
        role=role,
        path=str(path),
        source="statvfs",
        filesystem=kind,
        network=is_network(kind or ""),
        error=error,
    )


def probe_folder(role: str, path: Path, mounts: tuple[Mount, ...]) -> Folder:
    """Ask the file system about the folder, or about the nearest one above it that exists."""
    nearest = nearest_existing(path)
    room = os.statvfs(nearest)
    mount = find_mount(os.path.realpath(nearest), mounts)
    kind = mount.kind if mount else None
    read_only = bool(room.f_flag & os.ST_RDONLY)
    error = None if nearest.is_dir() else f"{nearest} is not a folder"
    return Folder(
        role=role,
        path=str(path),
        source=f"statvfs {nearest}",
        free_bytes=room.f_bavail * room.f_frsize,
        # Some file systems (btrfs, many network ones) count no inodes and say 0 of 0.
        free_inodes=room.f_favail if room.f_files else None,
        filesystem=kind,
        network=is_network(kind or ""),
        writable=error is None and not read_only and os.access(nearest, os.W_OK | os.X_OK),
        error=error,
    )


def nearest_existing(path: Path) -> Path:
    """Return the path itself, or the nearest one above it that is there."""
    absolute = path.absolute()
    return next((one for one in (absolute, *absolute.parents) if os.path.lexists(one) and one.exists()), Path("/"))
