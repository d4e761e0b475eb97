"""Reading what the `linkage` level judges: an environment's ELF files and packages, and this system's libraries."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from verl_env import process
from verl_env.proof.elf import Elf, ElfError, is_elf, read_elf, read_symbols
from verl_env.proof.linkage import TORCH, UNREADABLE, Finding, Subject, uses_torch
from verl_env.proof.loader import IN_DRIVER, Places, find_library, loaded_by_torch
from verl_env.proof.packages import Package, needed_by, owners, read_packages

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from verl_env.proof.linkage import Known

# Never ELF files for a processor: 100,000 of an environment's 110,000 files need not be opened.
_OTHER = (
    ".py", ".pyc", ".pyi", ".h", ".hpp", ".cuh", ".inl", ".cu", ".c", ".cc", ".cpp", ".cubin", ".json", ".txt", ".md",
    ".mo", ".a", ".yaml", ".pxd", ".pyx", ".in",
)  # fmt: skip
_OTHER_PYTHON = re.compile(r"\.cpython-(\d)(\d+)-")
_CACHE_LINE = re.compile(r"\s+(\S+) \(([^)]*)\) => (\S+)")
_CACHE_WORD = {"x86_64": "x86-64", "aarch64": "AArch64"}
_MACHINES = {62: "x86_64", 183: "aarch64"}  # e_machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Surveyed:
    """What was read: the subject to judge, files that could not be read, and counts of those left out, by why."""

    subject: Subject
    unreadable: tuple[Finding, ...]
    left_out: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """What to read: its folder, its Python minor, the row's CUDA, LD_LIBRARY_PATH, and the base's folders and names.

    `front` holds packages that are looked at as if they were installed: a wheel, unpacked.
    """

    folder: Path
    python: str
    cuda: str | None = None
    search: tuple[str, ...] = ()
    base_folders: tuple[str, ...] = ()
    base_packages: frozenset[str] = frozenset()
    front: Path | None = None


def survey_libraries(environment: Environment, known: Known) -> Surveyed:
    """Read an environment, and of its base the packages that it uses."""
    packages = environment_packages(environment)
    owner = owners(packages.values())
    real = {**_walk(environment.folder), **_of_base(environment, packages)}
    real |= _walk(environment.front) if environment.front else {}
    files, unreadable, left_out = _read(real, environment, owner)
    machine = os.uname().machine
    places = Places(real=real, system=_system_libraries(machine), machine=machine, search=environment.search, loaded={})
    places = _with_loaded(places, files, packages, known, environment)
    subject = Subject(
        root=str(environment.folder),
        files=files,
        places=places,
        owner=owner,
        before=_before(packages, places.loaded, {owner.get(it.path, "") for it in files.values() if uses_torch(it)}),
        cuda=environment.cuda,
    )
    return Surveyed(subject=_with_details(subject), unreadable=tuple(unreadable), left_out=left_out)


def environment_packages(environment: Environment) -> dict[str, Package]:
    """Return the environment's own packages, and those of its base that it uses."""
    found: dict[str, Package] = {}
    for folder in environment.base_folders:
        used = read_packages(Path(folder)).items()
        found |= {name: it for name, it in used if name in environment.base_packages and name not in found}
    found |= read_packages(site_packages(environment))
    return found | (read_packages(environment.front) if environment.front else {})


def site_packages(environment: Environment) -> Path:
    """Return where an environment's packages lie."""
    return environment.folder / "lib" / f"python{environment.python}" / "site-packages"


def _walk(folder: Path) -> dict[str, str]:
    """Return every path that may be a library or program, links too, with the file that it is."""
    found: dict[str, str] = {}
    for place, _, names in os.walk(folder):
        for name in names:
            if not name.endswith(_OTHER):
                path = f"{place}/{name}"
                found[path] = os.path.realpath(path) if os.path.islink(path) else path
    return found


def _of_base(environment: Environment, packages: Mapping[str, Package]) -> dict[str, str]:
    inside = f"{environment.folder}/"
    paths = (path for package in packages.values() for path in package.files if not path.startswith(inside))
    return {path: os.path.realpath(path) for path in paths if not path.endswith(_OTHER) and os.path.isfile(path)}


def _read(
    real: Mapping[str, str], environment: Environment, owner: Mapping[str, str]
) -> tuple[dict[str, Elf], list[Finding], dict[str, int]]:
    """Read each file once, by where it really lies; those for another Python or processor are counted, not judged."""
    files: dict[str, Elf] = {}
    unreadable: list[Finding] = []
    left_out: dict[str, int] = {}
    for path in sorted(set(real.values()) & real.keys()):
        if not is_elf(Path(path)):
            continue
        if why := _not_for_us(path, environment.python):
            left_out[why] = left_out.get(why, 0) + 1
            continue
        try:
            file = read_elf(Path(path))
        except ElfError as err:
            name = os.path.relpath(path, environment.folder)
            what = f"cannot be read: {err}"
            unreadable.append(Finding(kind=UNREADABLE, package=owner.get(path, ""), file=name, what=what))
            continue
        if file is None:
            continue
        if _MACHINES.get(file.machine, os.uname().machine) != os.uname().machine:
            left_out["another processor"] = left_out.get("another processor", 0) + 1
            continue
        files[path] = file
    return files, unreadable, left_out


def _not_for_us(path: str, python: str) -> str:
    """Say when a file's name says that another Python loads it."""
    match = _OTHER_PYTHON.search(os.path.basename(path))
    return "another Python" if match and f"{match[1]}.{match[2]}" != python else ""


def _system_libraries(machine: str) -> dict[str, str]:
    """Return what ldconfig's cache has for this architecture; nothing where there is no ldconfig."""
    environ = process.clean_environ({"PATH": f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"})
    try:
        done = process.run(["ldconfig", "-p"], env=environ, timeout=20)
    except OSError:
        return {}
    word = _CACHE_WORD.get(machine, machine)
    found: dict[str, str] = {}
    for line in done.stdout.splitlines():
        match = _CACHE_LINE.match(line)
        if match and word in match[2]:
            found.setdefault(match[1], match[3])
    return found


def _with_loaded(
    places: Places, files: Mapping[str, Elf], packages: Mapping[str, Package], known: Known, environment: Environment
) -> Places:
    """Add what packages, and Python itself, have loaded before others' files are."""
    loaded: dict[str, dict[str, str]] = {"python": _libpython(environment)}
    for it in known.loads:
        chosen = [file for file in files.values() if os.path.basename(file.path) in it.libraries]
        names = [(name, file.path) for file in chosen for name in (os.path.basename(file.path), file.soname)]
        loaded[it.package] = {name: path for name, path in names if name}
    if torch := packages.get(TORCH):
        inside = next((path for path in torch.files if path.endswith("/torch/__init__.py")), "")
        loaded[TORCH] = loaded_by_torch(os.path.dirname(inside), files, places) if inside else {}
    return Places(
        real=places.real,
        system=places.system,
        machine=places.machine,
        exists=places.exists,
        search=places.search,
        loaded=loaded,
    )


def _libpython(environment: Environment) -> dict[str, str]:
    """Return the libpython that the interpreter itself is linked to: every extension finds it loaded."""
    program = Path(os.path.realpath(environment.folder / "bin" / "python"))
    try:
        file = read_elf(program)
    except ElfError:
        return {}
    names = [name for name in file.needed if name.startswith("libpython")] if file else []
    return {name: str(program.parent.parent / "lib" / name) for name in names}


def _before(
    packages: Mapping[str, Package], loaded: Mapping[str, object], extensions: set[str]
) -> dict[str, tuple[str, ...]]:
    """Return, for each package, which of those that load libraries are imported before its own are loaded.

    Those that it needs, whatever its metadata keeps to itself (`extensions` are packages with extensions of torch);
    itself; and torch for what torch needs, since that is loaded through torch.
    """
    through_torch = needed_by(TORCH, packages) | extensions
    found = {}
    for name in packages:
        needs = {*needed_by(name, packages), name, "python"} | ({TORCH} if name in through_torch else set())
        found[name] = tuple(sorted(needs & loaded.keys()))
    return found


def _with_details(subject: Subject) -> Subject:
    """Read the versions that libraries outside provide, and the symbols between extensions and torch."""
    outside = {
        path
        for file in subject.files.values()
        for name in {name for name, _ in file.wants}
        if (path := find_library(file, name, subject.places, subject.loaded_before(file)))
        if path not in subject.files and path != IN_DRIVER
    }
    extensions = [it for it in subject.files.values() if uses_torch(it)]
    torch = {path for path, name in subject.owner.items() if name == TORCH and path in subject.files}
    symbols, has = {}, set[str]()
    for path in sorted({it.path for it in extensions} | torch):
        undefined, exported = read_symbols(Path(path))
        has |= exported
        if path not in torch:
            symbols[path] = undefined
    return Subject(
        root=subject.root,
        files=subject.files,
        places=subject.places,
        owner=subject.owner,
        before=subject.before,
        cuda=subject.cuda,
        provides=dict(_provided(outside)),
        symbols=symbols,
        torch_symbols=frozenset(has),
    )


def _provided(paths: Iterable[str]) -> Iterator[tuple[str, frozenset[str]]]:
    for path in paths:
        try:
            file = read_elf(Path(os.path.realpath(path)))
        except ElfError:
            continue
        yield path, file.defines if file else frozenset()
