"""Findings about room: shared memory, temporary folder, open files, memory."""

from __future__ import annotations

from verl_env.doctor.kind import Known

ROOM: dict[str, Known] = {
    "shm-small": Known(
        area="room",
        title="shared memory (/dev/shm) is small",
        why="NCCL, Ray's object store and data loaders share memory there: bus errors, or Ray in /tmp and slow",
    ),
    "shm-full": Known(
        area="room",
        title="shared memory (/dev/shm) is nearly full",
        why="NCCL, Ray's object store and data loaders share memory there; dead processes leave files",
    ),
    "tmp-full": Known(
        area="room",
        title="the temporary folder has no room",
        why="Ray's sessions and spilled objects, Triton's and pip's builds go there",
    ),
    "tmp-not-writable": Known(
        area="room", title="the temporary folder cannot be written", why="Ray, Triton and torch do not start without"
    ),
    "open-files-low": Known(
        area="room",
        title="few files may be open at once",
        why="Ray and data loaders open thousands; then connections fail for no visible reason",
    ),
    "cgroup-memory": Known(
        area="room",
        title="this container or job may use much less memory than the machine has",
        why="Ray and data loaders size themselves by the machine unless told; the kernel then kills them",
    ),
    "home-full": Known(
        area="room", title="the folder of environments or caches has no room", why="installs and downloads stop there"
    ),
    "home-unusable": Known(
        area="room",
        title="the folder of environments or caches cannot be used",
        why="nothing can be installed, and what is there may not start",
    ),
}
