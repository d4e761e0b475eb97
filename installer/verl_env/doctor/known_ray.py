"""Findings about Ray: address, session, cluster."""

from __future__ import annotations

from verl_env.doctor.kind import Known

RAY: dict[str, Known] = {
    "ray-dashboard-port": Known(
        area="ray",
        title="RAY_ADDRESS has the dashboard's port",
        why="8265 is the job API; a driver that joins the cluster needs the GCS port (6379)",
    ),
    "ray-address-loopback": Known(
        area="ray", title="RAY_ADDRESS is a loopback address", why="other nodes, and containers, reach themselves there"
    ),
    "ray-unreachable": Known(
        area="ray", title="the Ray head does not answer", why="a driver waits, and stops after its time-out"
    ),
    "ray-stale-session": Known(
        area="ray",
        title="Ray remembers a cluster that is gone",
        why="`ray.init(address='auto')` and `ray status` try it first, and wait",
    ),
    "ray-temp-path": Known(
        area="ray",
        title="Ray's temporary folder has too long a path",
        why="a socket's path may have 107 bytes, and Ray adds about 65 of its own",
    ),
    "ray-version-mismatch": Known(
        area="ray",
        title="nodes of the cluster run another Ray or Python",
        why="Ray wants the same Ray and the same Python patch on every node",
    ),
    "ray-gpus-missing": Known(
        area="ray", title="Ray sees fewer GPUs than there are", why="placement groups for the rest wait for ever"
    ),
    "ray-object-store": Known(
        area="ray",
        title="Ray's object store is larger than /dev/shm",
        why="it goes to /tmp and is slow, or ends with a bus error",
    ),
    "ray-memory-limit": Known(
        area="ray",
        title="Ray believes in more memory than this container may use",
        why="the kernel ends processes before Ray's own guard does",
    ),
    "ray-no-block": Known(
        area="ray",
        title="`ray start` without --block is the container's first process",
        why="Ray goes to the background, and the container ends with its first process",
    ),
}
