"""The dynamic loader's search, followed without loading: where each DT_NEEDED of an environment is found. Pure.

glibc's order (ld.so(8)): a library of that name that is loaded already; DT_RPATH of the file and of those that load it,
unless the file has a DT_RUNPATH; LD_LIBRARY_PATH; DT_RUNPATH; the cache of ldconfig; the usual folders.

What is loaded already is decided by Python. `import torch` loads torch's own libraries with what they need, and then
NVIDIA's by hand from the nvidia/*/lib folders beside it (`_preload_cuda_deps` in torch/__init__.py). A package that
depends on torch imports it first, and finds these without a path of its own. optional_libraries.toml names the
packages that load others likewise.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from verl_env.proof.elf import Elf

# Provided by the kernel driver, on GPU nodes only.
DRIVER = frozenset(
    f"lib{name}"
    for name in (
        "cuda.so.1", "nvidia-ml.so.1", "nvcuvid.so.1", "nvidia-encode.so.1", "nvidia-ptxjitcompiler.so.1",
        "nvidia-nvvm.so.4", "nvidia-opticalflow.so.1",
    )
)  # fmt: skip
IN_DRIVER = "the driver"

_FOLDERS = ("/lib/{0}-linux-gnu", "/usr/lib/{0}-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib")
# What torch loads by hand: what CUDA toolkits and NVIDIA's other packages bring.
_TOOLKIT = re.compile(
    r"lib(cublasLt|cublas|cudnn|nvrtc|nvrtc-builtins|cudart|cupti|cufft|curand|nvJitLink|cusparse|cusparseLt|cusolver"
    r"|nccl|nvshmem_host|cufile|nvToolsExt)\.so\.[\d.]*"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where libraries lie.

    `real` maps each path in the environment, links too, to the file that it is; `system` maps names of the base system
    to paths, `machine` is its architecture; `search` are the folders of LD_LIBRARY_PATH. `loaded` has, by package,
    what it has loaded by the time that packages which depend on it are imported: names to paths.
    """

    real: Mapping[str, str]
    system: Mapping[str, str]
    machine: str
    exists: Callable[[str], bool] = os.path.exists
    search: tuple[str, ...] = ()
    loaded: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def find_library(file: Elf, name: str, places: Places, before: Iterable[str] = ()) -> str | None:
    """Return the path of what a DT_NEEDED leads to, IN_DRIVER for what the driver brings, or None.

    `before` names the packages that are imported before the file is loaded.
    """
    for package in before:
        if path := places.loaded.get(package, {}).get(name):
            return path
    own = () if file.runpath else file.rpath
    for folder in (*_expanded(own, file), *places.search, *_expanded(file.runpath, file)):
        if path := _there(folder, name, places):
            return path
    if _TOOLKIT.fullmatch(name):  # a toolkit of this system's is no part of the environment, nor of the base system
        return None
    if name in places.system:
        return places.system[name]
    for usual in _FOLDERS:
        if path := _there(usual.format(places.machine), name, places):
            return path
    return IN_DRIVER if name in DRIVER else None


def find_all(
    files: Mapping[str, Elf], places: Places, before: Callable[[Elf], Iterable[str]]
) -> dict[str, dict[str, str | None]]:
    """Return where each file's libraries are found, by the file's path and the library's name; None for nowhere.

    What a file does not find by itself it may find through those that load it: again and again, since what they load
    may lead to others.
    """
    found = {
        path: {name: find_library(file, name, places, before(file)) for name in file.needed}
        for path, file in files.items()
    }
    while True:
        users = _users(found)
        changed = False
        for path, names in found.items():
            for name in (name for name, where in names.items() if where is None):
                names[name] = _through_users(files[path], name, _Loading(files, found, users, places))
                changed = changed or names[name] is not None
        if not changed:
            return found


@dataclass(frozen=True, slots=True)
class _Loading:
    """What is known while libraries are looked for: the files, what was found so far, and by whom each is needed."""

    files: Mapping[str, Elf]
    found: Mapping[str, Mapping[str, str | None]]
    users: Mapping[str, set[str]]
    places: Places


def _users(found: Mapping[str, Mapping[str, str | None]]) -> dict[str, set[str]]:
    users: dict[str, set[str]] = {}
    for path, names in found.items():
        for where in names.values():
            if where is not None and where in found:
                users.setdefault(where, set()).add(path)
    return users


def _through_users(file: Elf, name: str, loading: _Loading) -> str | None:
    """Look where those that load a file look, and among what they have loaded by then."""
    waiting, seen = [file.path], {file.path}
    while waiting:
        for user in sorted(loading.users.get(waiting.pop(), set()) - seen):
            seen.add(user)
            waiting.append(user)
            if path := loading.found[user].get(name):
                return path
            by = loading.files[user]
            for folder in () if file.runpath or by.runpath else _expanded(by.rpath, by):
                if path := _there(folder, name, loading.places):
                    return path
    return None


def _there(folder: str, name: str, places: Places) -> str | None:
    path = os.path.normpath(os.path.join(folder, name))
    if path in places.real:
        return places.real[path]
    return path if places.exists(path) else None


def _expanded(folders: tuple[str, ...], file: Elf) -> list[str]:
    """Return search folders with `$ORIGIN` replaced; a relative one depends on where a program starts, and is none."""
    origin = os.path.dirname(file.path)
    found = [it.replace("${ORIGIN}", origin).replace("$ORIGIN", origin) for it in folders]
    return [it for it in found if it.startswith("/")]


def loaded_by_torch(torch_folder: str, files: Mapping[str, Elf], places: Places) -> dict[str, str]:
    """Return what `import torch` has loaded, by name: its libraries, what these need, and what it loads by hand."""
    by_hand = {
        os.path.basename(link): path
        for link, path in places.real.items()
        if "/nvidia/" in link and os.path.basename(os.path.dirname(link)) == "lib"
        if path in files and _TOOLKIT.fullmatch(os.path.basename(link))
    }
    starts = [it for it in files.values() if it.path.startswith((f"{torch_folder}/lib/lib", f"{torch_folder}/_C."))]
    found = dict(by_hand)
    waiting, seen = [*starts, *(files[path] for path in by_hand.values())], set[str]()
    while waiting:
        file = waiting.pop()
        if file.path in seen:
            continue
        seen.add(file.path)
        for name in {file.soname, os.path.basename(file.path)} - {""}:
            found.setdefault(name, file.path)
        for name in file.needed:
            path = found.get(name) or find_library(file, name, places)
            if path is not None and path in files:
                waiting.append(files[path])
    return found
