"""Nodes on one machine, each with its own network, host name, processes and disk: Linux namespaces and nothing else.

Every namespace is held by one process that reads its stdin, so all of them end with the program that made them, however
that ends: their processes are killed by the kernel, and their links and mounts go with them.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

NETWORK = "10.77.0"
SWITCH = f"{NETWORK}.254"  # where programs beside the nodes are reached
# The first process of a namespace: it takes in orphans, leaves none of them dead and unburied, and ends with its stdin.
FIRST = "echo; exec env --ignore-signal=CHLD cat"
_DISK_BYTES = 600_000_000
_SHM_BYTES = 300_000_000


class Holder:
    """The first process of new namespaces."""

    def __init__(self, *flags, before=()) -> None:
        """Make the namespaces, below those that `before` enters."""
        words = [*before, "unshare", *flags, "--fork", "--mount-proc", "sh", "-c", FIRST]
        self.child = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        if not self.child.stdout.readline():
            self.end()
            raise OSError(f"no namespaces: {' '.join(words)}")
        self.pid = _last_child(self.child.pid)

    def words(self, *kinds) -> list[str]:
        """Return the words that run a program in some of its namespaces."""
        return ["nsenter", f"--target={self.pid}", *(f"--{kind}" for kind in kinds), "--"]

    def end(self) -> None:
        """End every process in it."""
        self.child.stdin.close()
        self.child.wait()
        self.child.stdout.close()


def _last_child(pid) -> int:
    """Return the process at the end of a chain of only children."""
    while children := Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        pid = int(children[0])
    return pid


@dataclass
class Node:
    """One node: its address, the variables that describe it, and whether its disk is a file of this machine."""

    name: str
    address: str
    described: dict[str, str]
    holder: Holder | None = None


@dataclass
class Nodes:
    """Nodes with one switch between them; `folder/home` is the same path on each, and another disk.

    `folder/tmp` is each node's own too. Disks outlive their nodes, and go when all of it is closed. They lie in memory,
    or, with `on_disk`, each in a file that takes the room that is used.
    """

    folder: Path
    disk_bytes: int = _DISK_BYTES
    on_disk: bool = False
    nodes: dict[str, Node] = field(default_factory=dict)
    site: Holder | None = None

    @property
    def home(self) -> Path:
        """What is VERL_ENV_HOME on each node."""
        return self.folder / "home"

    @property
    def tmp(self) -> Path:
        """What is TMPDIR on each node."""
        return self.folder / "tmp"

    def open(self) -> None:
        """Make the switch."""
        for made in (self.home, self.tmp, self.folder / "disks"):
            made.mkdir()
        self.site = Holder("--net", "--mount", "--pid")
        self.beside("ip", "link", "add", "switch", "type", "bridge")
        self.beside("ip", "address", "add", f"{SWITCH}/24", "dev", "switch")
        self.beside("ip", "link", "set", "switch", "up")
        self.beside("ip", "link", "set", "lo", "up")

    def close(self) -> None:
        """End all of it."""
        for node in self.nodes.values():
            self.stop(node.name)
        if self.site:
            self.site.end()

    def beside(self, *words) -> None:
        """Run a program beside the nodes, where their switch and disks are."""
        subprocess.run([*self.site.words("net", "mount", "pid"), *map(str, words)], check=True)

    def make(self, name, **described) -> Node:
        """Return a new node that runs nothing yet, or one of before with its disk; `described` are its variables."""
        node = self.nodes.get(name)
        if node is None:
            node = Node(name, f"{NETWORK}.{len(self.nodes) + 1}", described)
            self.nodes[name] = node
            self._make_disk(name)
        self.stop(name)
        node.holder = Holder("--net", "--mount", "--uts", "--ipc", "--pid", before=self.site.words("mount", "pid"))
        self._connect(node)
        self._mount(node)
        return node

    def _make_disk(self, name) -> None:
        place = self.folder / "disks" / name
        place.mkdir()
        if not self.on_disk:
            self.beside("mount", "-t", "tmpfs", "-o", f"size={self.disk_bytes}", "none", place)
            return
        image = place.with_suffix(".img")
        with image.open("wb") as file:
            file.truncate(self.disk_bytes)
        subprocess.run(["mkfs.ext4", "-q", "-m", "0", "-O", "^has_journal", image], check=True)
        self.beside("mount", "-o", "loop,discard", image, place)

    def _connect(self, node) -> None:
        link = f"to-{node.name}"
        ends = ["type", "veth", "peer", "name", "eth0", "netns", node.holder.pid]
        # Outside the site's processes: the node is named by the number that it has here.
        enter = self.site.words("net")
        for words in (["add", link, *ends], ["set", link, "master", "switch", "up"]):
            subprocess.run([*enter, "ip", "link", *map(str, words)], check=True)
        self.run(node.name, "ip", "address", "add", f"{node.address}/24", "dev", "eth0")
        self.run(node.name, "ip", "link", "set", "eth0", "up")
        self.run(node.name, "ip", "link", "set", "lo", "up")

    def _mount(self, node) -> None:
        self.run(node.name, "hostname", node.name)
        self.run(node.name, "mount", "--bind", self.folder / "disks" / node.name, self.home)
        self.run(node.name, "mount", "-t", "tmpfs", "none", self.tmp)
        self.run(node.name, "mount", "-t", "tmpfs", "-o", f"size={_SHM_BYTES}", "none", "/dev/shm")

    def words(self, name) -> list[str]:
        """Return the words that run a program on a node."""
        return self.nodes[name].holder.words("net", "mount", "uts", "ipc", "pid")

    def run(self, name, *words) -> None:
        """Run a program on a node to its good end."""
        subprocess.run([*self.words(name), *map(str, words)], check=True)

    def stop(self, name) -> None:
        """End a node as a lost machine ends, at once; its disk stays."""
        node = self.nodes[name]
        if node.holder:
            node.holder.end()
            node.holder = None
            # The kernel takes a dead network's links away in its own time, and a new node's has the same name.
            subprocess.run(
                [*self.site.words("net"), "ip", "link", "delete", f"to-{name}"], stderr=subprocess.DEVNULL, check=False
            )

    def cut_off(self, name) -> None:
        """Take its cable out."""
        self.beside("ip", "link", "set", f"to-{name}", "down")

    def slow(self, name, megabits) -> None:
        """Let no more than so much through to a node each second."""
        limit = ["tbf", "rate", f"{megabits}mbit", "burst", "256kb", "latency", "100ms"]
        self.beside("tc", "qdisc", "replace", "dev", f"to-{name}", "root", *limit)

    def disk(self, name) -> Path:
        """Return where this program sees a node's disk, which is `home` there."""
        return Path(f"/proc/{self.site.pid}/root{self.folder}/disks/{name}")

    def fill_disk(self, name, leave=0) -> None:
        """Fill a node's disk up to its last bytes, or but for some."""
        state = os.statvfs(self.disk(name))
        room = max(0, state.f_bavail * state.f_frsize - leave)
        filler = os.open(self.disk(name) / "filler", os.O_WRONLY | os.O_CREAT)
        with contextlib.closing(os.fdopen(filler, "wb")) as file:
            try:
                os.posix_fallocate(file.fileno(), 0, room)
            except OSError as err:
                if err.errno != errno.ENOSPC:
                    raise

    def wipe(self, name) -> None:
        """Leave nothing on a node's disk."""
        for path in self.disk(name).iterdir():
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()

    def empty_disk(self, name) -> None:
        """Take away what filled it."""
        (self.disk(name) / "filler").unlink()


@contextlib.contextmanager
def some_nodes(kind=Nodes, **options):
    """Yield nodes of a kind, none yet."""
    # Sockets below it have short names.
    folder = Path(tempfile.mkdtemp(prefix="ve-", dir="/tmp"))
    nodes = kind(folder=folder, **options)
    try:
        nodes.open()
        yield nodes
    finally:
        nodes.close()
        shutil.rmtree(folder)


def why_none() -> str:
    """Say why nodes cannot be made here, or nothing."""
    missing = [it for it in ("ip", "nsenter", "unshare", "mount") if shutil.which(it) is None]
    if missing:
        return f"nodes are made with {', '.join(missing)}, which is not here"
    tried = "mount -t tmpfs none /mnt && ip link add switch type bridge && ip link add left type veth peer name right"
    words = ["unshare", "--net", "--mount", "--uts", "--ipc", "--pid", "--fork", "--mount-proc", "sh", "-c", tried]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    said = " ".join(done.stderr.split())
    return f"no namespaces for nodes may be made here: {said}" if done.returncode else ""
