"""Faults that are not kills, each as a function of a world: what verl-env said, what it left, how a rerun ended."""

from __future__ import annotations

import base64
import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import time
import zipfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fault_kills import children, phase_of
from fault_world import Server, World

from verl_env.environment.receipt import read_receipt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tiny import Done


class NotHereError(Exception):
    """This machine cannot make that fault; the message says why."""


@dataclass
class Seen:
    """What came of one fault: the exit code, what was said, what was left beside `old`, and how the rerun ended."""

    code: int
    said: str
    left: list[str]
    rerun: int | None = None
    note: str = ""


def left(world: World) -> list[str]:
    """Return what stands among the environments beside those that are complete."""
    found = sorted(world.environments.iterdir()) if world.environments.is_dir() else []
    return [it.name for it in found if not (it.is_dir() and not it.is_symlink() and read_receipt(it))]


def _seen(world: World, done: Done, *, rerun: bool = True, note: str = "") -> Seen:
    rest = left(world)
    again = world.install("new") if rerun else None
    return Seen(code=done.code, said=done.err, left=rest, rerun=again.code if again else None, note=note)


# ---- disks


@contextmanager
def _mounted(place: Path, size: str) -> Iterator[None]:
    """Lay a small file system in memory over a folder."""
    place.mkdir(parents=True, exist_ok=True)
    words = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)]
    made = subprocess.run(words, capture_output=True, text=True, check=False)
    if made.returncode != 0:
        raise NotHereError(f"no tmpfs can be mounted here: {made.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def full_disk(world: World, size: str) -> Seen:
    """The environments' disk is full after `size` bytes; then there is room."""
    home = world.folder / "small"
    with _mounted(home, size):
        variables = {"VERL_ENV_HOME": str(home), "UV_LINK_MODE": "copy"}
        done = world.tool("install", "--cpu", "--row", "new", "--no-space-check", **variables)
        there = home / "environments"
        rest = [it.name for it in there.iterdir()] if there.is_dir() else []
        subprocess.run(["mount", "-o", "remount,size=200m", str(home)], check=True)
        again = world.tool("install", "--cpu", "--row", "new", **variables)
    return Seen(code=done.code, said=done.err, left=rest, rerun=again.code)


def full_cache(world: World, size: str) -> Seen:
    """The disk of uv's cache is full after `size` bytes; then there is room."""
    cache = world.folder / "small-cache"
    with _mounted(cache, size):
        done = world.install("new", "--no-space-check", UV_CACHE_DIR=str(cache))
        rest = left(world)
        subprocess.run(["mount", "-o", "remount,size=200m", str(cache)], check=True)
        again = world.install("new", UV_CACHE_DIR=str(cache))
    return Seen(code=done.code, said=done.err, left=rest, rerun=again.code)


def short_of_space(world: World) -> Seen:
    """Too little room is seen before the first byte."""
    home = world.folder / "small"
    with _mounted(home, "100k"):
        done = world.install("new", VERL_ENV_HOME=str(home))
        rest = [it.name for it in home.iterdir()]
    return Seen(code=done.code, said=done.err, left=rest)


def read_only(world: World) -> Seen:
    """The target cannot be written."""
    home = world.folder / "read-only"
    with _mounted(home, "10m"):
        subprocess.run(["mount", "-o", "remount,ro", str(home)], check=True)
        done = world.install("new", VERL_ENV_HOME=str(home))
        rest = [it.name for it in home.iterdir()]
        subprocess.run(["mount", "-o", "remount,rw,size=200m", str(home)], check=True)
        again = world.install("new", VERL_ENV_HOME=str(home))
    return Seen(code=done.code, said=done.err, left=rest, rerun=again.code)


# ---- networks


def cache_removed(world: World, after: int = 4) -> Seen:
    """Uv's cache is removed while uv fetches into it."""
    world.server.pause, world.server.served = 0.1, 0
    child = world.tool.start("install", "--cpu", "--row", "new")
    end = time.monotonic() + 60
    while world.server.served < after and time.monotonic() < end:
        time.sleep(0.005)
    shutil.rmtree(world.cache, ignore_errors=True)
    done = world.tool.finish(child)
    world.server.pause = 0.0
    return _seen(world, done)


def server_breaks(world: World, how: str, after: int = 4) -> Seen:
    """The index stops in the middle (`gone`), sends half a file each time (`half`), or 503s (`storm`)."""
    server = world.server
    server.how, server.break_after, server.served = how, after, 0
    done = world.install("new")
    server.how = ""
    if server.server is None:
        server.start()
    return _seen(world, done)


def redirect(world: World, *, honest: bool) -> Seen:
    """The index, which needs a login, sends each file's reader to another host; that one may serve other bytes."""
    other = Server(folder=world.server.folder).start()
    if not honest:
        other.swapped = {it.name: world.wheels[0] for it in world.wheels if it.name.startswith("many_0-")}
    server = world.server
    server.how, server.break_after, server.served = "redirect", 0, 0
    server.elsewhere = f"http://localhost:{other.port}/"  # another host than 127.0.0.1, as far as HTTP goes
    login = server.url.replace("http://", "http://user:secret@")
    done = world.install("new", "-v", UV_DEFAULT_INDEX=login)
    server.how = ""
    forwarded = [it for it in other.authorizations if it[1]]
    own = [it for it in server.authorizations if it[1]]
    other.stop()
    note = f"{len(other.authorizations)} asked of the other host, {len(forwarded)} with the login ({len(own)} at home)"
    return _seen(world, done, rerun=not honest, note=note)


def swapped_file(world: World) -> Seen:
    """The index says the right hash and sends another wheel."""
    world.server.swapped = {it.name: world.wheels[0] for it in world.wheels if it.name.startswith("many_3-")}
    done = world.install("new")
    world.server.swapped = {}
    return _seen(world, done)


def tampered_file(world: World) -> Seen:
    """The index's own file was changed, and its page has the changed file's hash."""
    (wheel,) = [it for it in world.wheels if it.name.startswith("many_2-")]
    good = wheel.read_bytes()
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("many_2/evil.py", "print('evil')\n")
    done = world.install("new")
    wheel.write_bytes(good)
    return _seen(world, done)


# ---- wheels and places that mean harm


def hostile_wheel(folder: Path, name: str, member: str, record: str | None = None) -> Path:
    """Write a wheel with a file that leads outside of where it is unpacked, or a RECORD that does."""
    info = f"{name}-1.0.dist-info"
    files = {
        f"{name}/__init__.py": "",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: faults\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        member: "evil = True\n",
    }
    lines = []
    for path, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        lines.append(f"{record if record and path == member else path},sha256={digest},{len(text)}\n")
    path = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for member_name, text in {**files, f"{info}/RECORD": "".join(lines) + f"{info}/RECORD,,\n"}.items():
            archive.writestr(zipfile.ZipInfo(member_name, date_time=(2026, 11, 30, 0, 0, 0)), text)
    return path


def traversal(world: World, member: str, record: str | None = None) -> Seen:
    """A pinned wheel writes outside of the environment, or its RECORD says so."""
    wheel = hostile_wheel(world.server.folder, "hostile", member, record)
    world.site.add_row("hostile", [*world.wheels[:2], wheel], imports=("verl",), set={"verl": "200.0"})
    before = set(world.folder.rglob("*evil*"))
    done = world.install("hostile")
    escaped = [
        str(it.relative_to(world.folder))
        for it in world.folder.rglob("*evil*")
        if it not in before and not {world.cache, world.environments, world.home / "cache"} & set(it.parents)
    ]
    complete = [it.name for it in world.environments.glob("hostile-*")]
    return Seen(code=done.code, said=done.err, left=[*left(world), *escaped], note=f"complete: {len(complete)}")


def planted_link(world: World, where: str) -> Seen:
    """Somebody planted a link where the environment, its lock or its marker will be."""
    victim = world.folder / "victim"
    victim.mkdir(exist_ok=True)
    (victim / "precious").write_text("precious")
    name = world.names["new"]
    link = world.environments / {"folder": name, "lock": f".{name}.lock", "marker": f".{name}.building"}[where]
    target = victim if where == "folder" else victim / "precious"
    link.symlink_to(target)
    done = world.install("new")
    intact = (victim / "precious").read_text() == "precious" and len(list(victim.iterdir())) == 1
    link.unlink(missing_ok=True)
    rest = left(world)
    return Seen(code=done.code, said=done.err, left=rest, rerun=world.install("new").code, note=f"intact: {intact}")


def open_parent(world: World) -> Seen:
    """Anybody may write to the folder above."""
    parent = world.folder / "open"
    parent.mkdir()
    parent.chmod(0o777)
    done = world.install("new", VERL_ENV_HOME=str(parent / "data"))
    return Seen(code=done.code, said=done.err, left=[it.name for it in parent.iterdir()])


# ---- several at once, and interruptions


def several(world: World, count: int) -> Seen:
    """Many installers of one environment at once: one builds, the others join."""
    world.server.pause, world.server.served = 0.05, 0
    started = [world.tool.start("install", "--cpu", "--row", "new") for _ in range(count)]
    ended = [world.tool.finish(child) for child in started]
    world.server.pause = 0.0
    waited = sum("is at work on" in done.err for done in ended)
    codes = [done.code for done in ended]
    note = f"{count} at once: {waited} waited; {world.server.served} files served for {len(world.wheels)} wheels"
    return Seen(code=max(codes), said="\n".join(done.err for done in ended), left=left(world), note=note)


def busy(world: World) -> Seen:
    """Somebody holds the lock for longer than --wait."""
    path = world.environments / f".{world.names['new']}.lock"
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        done = world.install("new", "--wait", "0.5")
    return _seen(world, done)


def interrupted(world: World, phase: str, how: int = signal.SIGINT) -> Seen:
    """Ctrl-C (or SIGTERM) in a phase: clean, 130, no child stays."""
    world.server.pause = 0.1 if phase == "fetch" else 0.0
    folder = world.path("new")
    child = world.tool.start("install", "--cpu", "--row", "new")
    below: list[int] = []
    while child.poll() is None:
        if phase_of(child.pid, folder) == phase:
            time.sleep(0.02)
            below = children(child.pid)
            child.send_signal(how)
            break
        time.sleep(0.001)
    done = world.tool.finish(child)
    world.server.pause = 0.0
    alive = [pid for pid in below if _runs(pid)]
    return _seen(world, done, note=f"children alive: {len(alive)}")


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def clock_set_back(world: World) -> Seen:
    """Every file of the environment and of the cache is from a past long gone, as after a clock that was set back."""
    done = world.install("new")
    for place in (world.environments, world.cache):
        for path in place.rglob("*"):
            os.utime(path, (0, 0), follow_symlinks=False)
    python = world.path("new") / "bin/python"
    words = [python, "-v", "-c", "import many_0"]
    said = subprocess.run(words, env={}, capture_output=True, text=True, check=True).stderr
    compiled = [line for line in said.splitlines() if "wrote" in line or "bytecode is stale" in line]
    code = world.tool("verify").code
    note = f"rerun: verify; bytecode written anew: {len(compiled)}"
    return Seen(code=done.code, said="\n".join(compiled), left=left(world), rerun=code, note=note)


def clock_jumps(world: World) -> Seen:
    """The clock is years back while installing, by libfaketime."""
    library = next((it for it in map(Path, _FAKETIME) if it.is_file()), None)
    if library is None:
        raise NotHereError("libfaketime is not here")
    done = world.install("new", LD_PRELOAD=str(library), FAKETIME="-3650d", FAKETIME_DONT_FAKE_MONOTONIC="1")
    return _seen(world, done)


_FAKETIME = (
    os.environ.get("LIBFAKETIME", ""),
    "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1",
    "/usr/lib/aarch64-linux-gnu/faketime/libfaketime.so.1",
    "/usr/lib64/faketime/libfaketime.so.1",
)

SCENARIOS: dict[str, Callable[[World], Seen]] = {
    "full disk after 64 kB": lambda world: full_disk(world, "64k"),
    "full disk after 300 kB": lambda world: full_disk(world, "300k"),
    "full disk after 700 kB": lambda world: full_disk(world, "700k"),
    "full disk after 1.5 MB": lambda world: full_disk(world, "1500k"),
    "full cache after 200 kB": lambda world: full_cache(world, "200k"),
    "too little space": short_of_space,
    "read-only target": read_only,
    "cache removed half-way": cache_removed,
    "network cut": lambda world: server_breaks(world, "gone"),
    "half a wheel": lambda world: server_breaks(world, "half"),
    "5xx storm": lambda world: server_breaks(world, "storm"),
    "redirect to another host": lambda world: redirect(world, honest=True),
    "redirect to a host with other bytes": lambda world: redirect(world, honest=False),
    "another file under the name": swapped_file,
    "tampered wheel, and its hash on the page": tampered_file,
    "path-traversing wheel": lambda world: traversal(world, "../../../../../evil.py"),
    "absolute path in a wheel": lambda world: traversal(world, f"{world.folder}/evil.py"),
    "RECORD that leads outside": lambda world: traversal(world, "hostile/evil.py", "../../../../../../etc/passwd"),
    "link planted at the folder": lambda world: planted_link(world, "folder"),
    "link planted at the lock": lambda world: planted_link(world, "lock"),
    "link planted at the marker": lambda world: planted_link(world, "marker"),
    "world-writable parent": open_parent,
    "two installers at once": lambda world: several(world, 2),
    "eight installers at once": lambda world: several(world, 8),
    "a holder that does not end": busy,
    "Ctrl-C while locating": lambda world: interrupted(world, "locate"),
    "Ctrl-C while fetching": lambda world: interrupted(world, "fetch"),
    "Ctrl-C while compiling": lambda world: interrupted(world, "compile"),
    "Ctrl-C while proving": lambda world: interrupted(world, "proof"),
    "SIGTERM while compiling": lambda world: interrupted(world, "compile", signal.SIGTERM),
    "clock set back afterwards": clock_set_back,
    "clock ten years back": clock_jumps,
}
