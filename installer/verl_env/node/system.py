"""What kind of machine this is: C library, processor, distribution, container, scheduler."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from verl_env.node.facts import Named, Value

if TYPE_CHECKING:
    from verl_env.node.host import Host


def read_glibc() -> Value | None:
    """Return this process's glibc version; None under another C library (musl)."""
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    except (ValueError, OSError):
        return None
    return Value(value=version, source="confstr CS_GNU_LIBC_VERSION") if name == "glibc" and version else None


def read_machine() -> Value:
    """Return the processor architecture as wheels name it."""
    return Value(value=os.uname().machine, source="uname")


def read_kernel() -> Value:
    """Return the kernel's release."""
    return Value(value=os.uname().release, source="uname")


def read_cpu(host: Host) -> Value | None:
    """Return the processor's model; Arm machines often name none."""
    for line in (host.read("/proc/cpuinfo") or "").splitlines():
        name, _, value = line.partition(":")
        if name.strip() in {"model name", "Model"} and value.strip():
            return Value(value=value.strip(), source="/proc/cpuinfo")
    return None


def read_distribution(host: Host) -> Value | None:
    """Return the distribution's own name for itself."""
    for path in ("/etc/os-release", "/usr/lib/os-release"):
        values = dict(line.partition("=")[::2] for line in (host.read(path) or "").splitlines() if "=" in line)
        name = values.get("PRETTY_NAME") or values.get("NAME")
        if name:
            return Value(value=name.strip().strip("\"'"), source=path)
    return None


def find_wsl(host: Host) -> Value | None:
    """Return the kernel's words when this is Windows' Linux, where the driver is Windows' own."""
    release = (host.read("/proc/sys/kernel/osrelease") or host.read("/proc/version") or "").strip()
    if "microsoft" in release.lower():
        return Value(value=release, source="/proc")
    for path in ("/dev/dxg", "/usr/lib/wsl/lib"):
        if host.path(path).exists():
            return Value(value=path, source=path)
    return None


_CONTAINER_VARIABLES = (
    ("kubernetes", "KUBERNETES_SERVICE_HOST"),
    ("apptainer", "APPTAINER_CONTAINER"),
    ("apptainer", "SINGULARITY_CONTAINER"),
)
_CONTAINER_FILES = (
    ("apptainer", "/.singularity.d"),
    ("podman", "/run/.containerenv"),
    ("docker", "/.dockerenv"),
)
_CONTAINER_GROUPS = (
    ("kubernetes", "kubepods"),
    ("docker", "docker"),
    ("podman", "libpod"),
    ("containerd", "containerd"),
    ("lxc", "/lxc"),
)


def find_container(host: Host) -> Named | None:
    """Return the container runtime, the most telling sign first: a pod's container has Docker's marks too."""
    for name, variable in _CONTAINER_VARIABLES:
        if host.environ.get(variable):
            return Named(name=name, source=variable)
    for name, path in _CONTAINER_FILES:
        if host.path(path).exists():
            return Named(name=name, source=path)
    groups = host.read("/proc/1/cgroup") or ""
    for name, word in _CONTAINER_GROUPS:
        if word in groups:
            return Named(name=name, source="/proc/1/cgroup")
    said = host.environ.get("container") or (host.read("/run/systemd/container") or "").strip()
    return Named(name=said, source="container") if said else None


_SCHEDULERS = (
    # name, variables of a job, commands, settings
    ("slurm", ("SLURM_JOB_ID", "SLURM_CONF"), ("srun", "sbatch"), ("/etc/slurm", "/etc/slurm-llnl")),
    ("lsf", ("LSB_JOBID", "LSF_ENVDIR"), ("bsub",), ()),
    ("grid-engine", ("SGE_ROOT",), (), ()),
    ("pbs", ("PBS_JOBID", "PBS_CONF_FILE"), ("qsub",), ("/etc/pbs.conf",)),
    ("htcondor", ("_CONDOR_SLOT", "CONDOR_CONFIG"), ("condor_submit",), ("/etc/condor",)),
    ("flux", ("FLUX_URI",), ("flux",), ()),
)


def find_scheduler(host: Host) -> Named | None:
    """Return the batch scheduler in sight: the GPUs may be on other nodes than this one."""
    for name, variables, commands, settings in _SCHEDULERS:
        for variable in variables:
            if host.environ.get(variable):
                return Named(name=name, source=variable)
        for command in commands:
            found = host.which(command)
            if found:
                return Named(name=name, source=str(found))
        for path in settings:
            if host.path(path).exists():
                return Named(name=name, source=path)
    return None
