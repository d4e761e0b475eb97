"""A real Slurm on this machine, for root: each node has its own host name, network, processes and home.

All of it lives in namespaces below one process and in one folder: nothing of it is left when that process ends.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

PROGRAMS = (
    "munged",
    "slurmctld",
    "slurmd",
    "srun",
    "sbcast",
    "salloc",
    "scontrol",
    "ip",
    "unshare",
    "nsenter",
    "setpriv",
)
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
NETWORK = "10.211.0"
_START_SECONDS = 60.0
# The first process of the cluster: a bridge that the nodes' networks meet at, munge, and the controller.
_CONTROLLER = """
set -eu
mount --make-rprivate /
mount -t tmpfs none /run
mkdir /run/netns
hostname control
ip link set lo up
ip link add br0 type bridge
ip address add {network}.1/24 dev br0
ip link set br0 up
munged --foreground --force --key-file={folder}/munge.key --socket={folder}/munge.socket --num-threads=2 \
    --pid-file={folder}/munge.pid --seed-file={folder}/munge.seed --log-file={folder}/munge.log &
until [ -S {folder}/munge.socket ]; do sleep 0.05; done
exec slurmctld -D -f {folder}/slurm.conf >{folder}/slurmctld.out 2>&1
"""
_NODE = """
set -eu
ip link delete to-{name} 2>/dev/null || true
ip netns delete {name} 2>/dev/null || true
ip netns add {name}
ip link add to-{name} type veth peer name eth0 netns {name}
ip link set to-{name} master br0 up
ip -n {name} link set lo up
ip -n {name} address add {address}/24 dev eth0
ip -n {name} link set eth0 up
exec nsenter --net=/run/netns/{name} unshare --uts --mount --pid --fork --kill-child --mount-proc sh -c '
    hostname {name}
    mount --bind {folder}/homes/{name} {folder}/home
    {small}
    exec slurmd -D -f {folder}/slurm.conf >{folder}/{name}.out 2>&1'
"""
_CONF = """
ClusterName=test
SlurmctldHost=control({network}.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
SlurmdTimeout=20
MessageTimeout=10
TaskProlog={folder}/prolog
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
# What Slurm runs before each task: the variables that it prints are the task's. Here: which driver a node is said to have.
_PROLOG = """#!/bin/sh
while read -r line; do echo "export $line"; done <{folder}/described/$SLURMD_NODENAME
"""


@dataclass
class SlurmNodes:
    """A cluster whose nodes are described by variables: `{"node1": {"VERL_ENV_DRIVER": "…"}}`.

    Below `homes` is each node's home; but those of nodes in `small` are disks of so many megabytes, seen only there.
    """

    folder: Path
    described: dict[str, dict[str, str]]
    small: dict[str, int] = field(default_factory=dict)
    control: subprocess.Popen | None = None
    nodes: dict[str, subprocess.Popen] = field(default_factory=dict)

    @property
    def home(self) -> Path:
        """The folder whose path is the same everywhere, and whose content is each node's own."""
        return self.folder / "home"

    def __enter__(self):
        """Start everything, and wait until every node is idle."""
        try:
            self._lay_out()
            script = _CONTROLLER.format(folder=self.folder, network=NETWORK)
            # It ends with us, however we end; and with it ends all that runs in its namespaces.
            words = [
                "setpriv",
                "--pdeathsig",
                "KILL",
                "--",
                "unshare",
                "--mount",
                "--uts",
                "--net",
                "--pid",
                "--fork",
                "--kill-child",
                "--mount-proc",
            ]
            self.control = self._start([*words, "sh", "-c", script], "control")
            self.wait("the first process", lambda: children(self.control.pid))
            self.wait("the controller", lambda: self.inside("scontrol", "ping").returncode == 0)
            for name in self.described:
                self.start_node(name)
            for name in self.described:
                self.wait_for(name, "idle")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_args: object) -> None:
        """End the first process; the kernel ends all others with it."""
        if self.control:
            self.control.kill()
            self.control.wait()
        for child in self.nodes.values():
            child.wait()
        self.wait("the last process", lambda: not self._left())

    def _lay_out(self) -> None:
        own = [f"{kind}{name}" for name in self.described for kind in ("homes/", "spool-")]
        for name in ("state", "described", "home", *own):
            (self.folder / name).mkdir(parents=True)
        (self.folder / "munge.key").write_bytes(os.urandom(128))
        (self.folder / "munge.key").chmod(0o400)
        lines = [
            f"NodeName={name} NodeAddr={NETWORK}.{at} NodeHostname={name} CPUs=2 RealMemory=1000"
            for at, name in enumerate(self.described, 2)
        ]
        conf = _CONF.format(folder=self.folder, network=NETWORK, nodes="\n".join(lines))
        (self.folder / "slurm.conf").write_text(conf)
        # slurmd wants a hierarchy to be named; with these plugins it makes no group there.
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        (self.folder / "prolog").write_text(_PROLOG.format(folder=self.folder))
        (self.folder / "prolog").chmod(0o755)
        for name, variables in self.described.items():
            text = "".join(f"{key}={value}\n" for key, value in variables.items())
            (self.folder / "described" / name).write_text(text)

    def _start(self, words, name) -> subprocess.Popen:
        with open(self.folder / f"{name}.start", "wb") as said:
            return subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                env={"PATH": PATH, "HOME": "/root", "LANG": "C.UTF-8"},
                start_new_session=True,
            )

    def entering(self) -> list[str]:
        """Return the words before a command that shall run beside the controller."""
        return ["nsenter", "--target", str(*children(self.control.pid)), "--mount", "--uts", "--net", "--pid", "--"]

    def variables(self) -> dict[str, str]:
        """Return the variables by which Slurm's programs find this cluster."""
        return {"SLURM_CONF": str(self.folder / "slurm.conf"), "PATH": PATH}

    def on(self, name: str, *words) -> subprocess.CompletedProcess:
        """Run a command on a node."""
        (unshare,) = children(self.nodes[name].pid)
        (first,) = children(unshare)
        entering = ["nsenter", "--target", str(first), "--mount", "--uts", "--net", "--pid", "--"]
        return subprocess.run([*entering, *words], check=True, capture_output=True, text=True)

    def inside(self, *words, **variables) -> subprocess.CompletedProcess:
        """Run a command beside the controller."""
        return subprocess.run(
            [*self.entering(), *map(str, words)],
            env={**os.environ, **self.variables(), **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    def start_node(self, name: str) -> None:
        """Start a node's slurmd in namespaces of its own."""
        at = list(self.described).index(name) + 2
        size = self.small.get(name)
        small = f"mount -t tmpfs -o size={size}m none {self.folder}/home" if size else ""
        script = _NODE.format(name=name, address=f"{NETWORK}.{at}", folder=self.folder, small=small)
        self.nodes[name] = self._start([*self.entering(), "sh", "-c", script], name)

    def kill_node(self, name: str) -> None:
        """Take a node's network away and end its processes, as a power cut does."""
        self.cut_off(name)
        child = self.nodes.pop(name)
        for pid in children(child.pid):  # `unshare`, and what it started ends with it
            os.kill(pid, signal.SIGKILL)
        child.wait()

    def cut_off(self, name: str) -> None:
        """Take a node's network away; its processes go on."""
        self.inside("ip", "link", "set", f"to-{name}", "down")

    def wait_for(self, name: str, state: str) -> None:
        """Wait until the controller says this of a node."""
        words = ("sinfo", "--Node", "--noheader", "--format=%N %T")  # of one node alone it may say what was before
        self.wait(f"{name} to be {state}", lambda: f"{name} {state}" in self.inside(*words).stdout.replace("*", ""))

    def steps(self) -> list[str]:
        """Return the steps that run."""
        return self.inside("squeue", "--steps", "--noheader", "--format=%i").stdout.split()

    def wait(self, what: str, holds: Callable[[], object]) -> None:
        """Wait until something holds."""
        until = time.monotonic() + _START_SECONDS
        while not holds():
            if time.monotonic() > until:
                raise TimeoutError(f"waited for {what}: see {self.folder}")
            time.sleep(0.2)

    def _left(self) -> list[int]:
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                if f"{self.folder}/slurm.conf".encode() in path.read_bytes():
                    found.append(int(path.parent.name))
        return found


def children(pid: int) -> list[int]:
    """Return the processes that a process started."""
    return [int(it) for it in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def missing() -> str:
    """Return what keeps a Slurm from running here, or nothing."""
    if os.geteuid() != 0:
        return "namespaces and slurmd need root"
    lacking = [it for it in PROGRAMS if shutil.which(it, path=PATH) is None]
    return f"not installed: {', '.join(lacking)} (Debian: slurm-wlm, munge, iproute2)" if lacking else ""
