"""What was found of a list or an environment becomes a lock. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from packaging.version import Version

from verl_env.lock.build import DEFAULT_IMPORTS, build_lock
from verl_env.lock.lockfile import SCHEMA, Lock, Table, sealed
from verl_env.matrix.facts import Facts
from verl_env.matrix.matrix import Entry
from verl_env.matrix.pins import Pin, Pins, glibc_floor
from verl_env.matrix.support import driver_floor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from verl_env.lock.captured import Captured

# What people choose by; a captured lock states those that it has.
_SET = ("verl", "torch", "vllm", "sglang", "flashinfer-python", "ray", "transformers", "tensordict")
_DECIDING = ("torch", "vllm", "sglang", "verl")
_MODULES = {"flashinfer": "flashinfer-python", "sgl_kernel": "sgl-kernel"}
_UNPACKED = 2.4  # of wheels that nobody measured unpacked: GPU stacks were 2.1 to 2.3 times their wheels


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What the lock is for, and what is known: `near` is the nearest row with its pins; `allow` names rules set aside.

    What a row knows of its set (imports, exports, settings) holds here as far as the set is the same. `build` is what
    source packages are built with.
    """

    python: str
    arch: str
    facts: Facts
    near: tuple[Entry, Pins] | None = None
    allow: tuple[str, ...] = ()
    build: tuple[Pin, ...] = ()


def captured_lock(
    name: str, pins: tuple[Pin, ...], urls: Mapping[str, str], captured: Captured, target: Target
) -> Lock:
    """Return the lock of these files; where they are exactly a row's pins, it is the lock of that row."""
    near = target.near
    if near and _same_files(pins, near[1].pins):
        lock = build_lock(near[0], near[1], target.facts, urls)
        if not (captured.patch or captured.git or captured.left_out):
            return lock
        table = replace(lock.table, captured=captured, allow=target.allow, build=target.build)
        return sealed(replace(lock, table=table))
    return sealed(Lock(table=_table(name, pins, captured, target), pins=pins, urls=dict(urls)))


def _same_files(one: tuple[Pin, ...], other: tuple[Pin, ...]) -> bool:
    return {(it.name, it.sha256) for it in one} == {(it.name, it.sha256) for it in other}


def _table(name: str, pins: tuple[Pin, ...], captured: Captured, target: Target) -> Table:
    near, facts = target.near, target.facts
    versions = {pin.name: pin.version for pin in pins} | {it.name: it.version for it in captured.git if it.version}
    row = near[0].row if near else None
    same_set = row is not None and all(_same(versions.get(it), row.set.get(it)) for it in _DECIDING)
    cuda = row.cuda if row and same_set else cuda_of_set(versions, facts, target.arch)
    download = sum(pin.size for pin in pins)
    return Table(
        schema=SCHEMA,
        digest="",
        row=name,
        title=f"captured from {_article(captured.kind)}" + (f", nearest row {captured.nearest}" if near else ""),
        python=target.python,
        arch=target.arch,
        allow=target.allow,
        imports=_imports(row.smoke.imports if row and row.smoke else DEFAULT_IMPORTS, versions),
        cuda=cuda,
        driver=driver_floor(cuda, facts),
        glibc=glibc_floor(tuple(pin.file for pin in pins)),
        download_bytes=download,
        installed_bytes=int(download * _UNPACKED),
        set={it: versions[it] for it in _SET if it in versions},
        exports=row.exports if row and same_set else {},
        attention=row.attention.said if row and same_set and row.attention else None,
        settings=row.attention.settings if row and same_set and row.attention else (),
        sources={pin.name: pin.source for pin in pins if pin.source != "default"},
        build=target.build,
        unproven="captured, and proved nowhere by verl-env",
        captured=captured,
    )


def _article(kind: str) -> str:
    return f"an {kind}" if kind[:1] in "aeiou" else f"a {kind}"


def _same(one: str | None, other: str | None) -> bool:
    """Compare two versions of which one may leave out its build's label."""
    if one is None or other is None:
        return one is other
    left, right = Version(one), Version(other)
    return left == right or (left.public == right.public and not (left.local and right.local))


def _imports(wanted: tuple[str, ...], versions: Mapping[str, str]) -> tuple[str, ...]:
    """Keep the imports whose packages are there."""
    return tuple(it for it in wanted if _MODULES.get(top := it.partition(".")[0], top.replace("_", "-")) in versions)


def cuda_of_set(versions: Mapping[str, str], facts: Facts, arch: str) -> str | None:
    """Return the highest CUDA of the compiled packages, where labels or facts show it; None for CPU work."""
    found = []
    for name in ("torch", "vllm", "sglang", "sgl-kernel", "sglang-kernel"):
        build = facts.build(name, versions[name], machine=arch) if name in versions else None
        if build and build.cuda:
            found.append(build.cuda)
    runtime = next((versions[it] for it in versions if it.startswith("nvidia-cuda-runtime")), None)
    if not found and runtime:
        found.append(".".join(str(part) for part in Version(runtime).release[:2]))
    return max(found, key=Version, default=None)
