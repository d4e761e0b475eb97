"""The `linkage` level: what the loader, and torch's C++ interface, would refuse of an environment's ELF files. Pure."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from packaging.version import Version

from verl_env.proof.elf import Elf
from verl_env.proof.loader import IN_DRIVER, Places, find_all

MISSING, VERSION, MAJOR, TWICE, SYMBOL, UNREADABLE = (
    "library-missing", "version-missing", "other-cuda", "two-copies", "symbol-missing", "unreadable",
)  # fmt: skip

# Libraries whose soname carries the CUDA major; cuFFT's, cuSPARSE's and their like carry numbers of their own.
_CUDA_MAJOR = re.compile(r"lib(?:cudart|cublas|cublasLt|nvrtc|nvJitLink|cupti)(?:[-.][0-9a-f]{8})?\.so\.(\d+)")
# One copy each in a process: two have two states. Wheels that carry one give it a name of its own, with a hash in it.
_ONE_EACH = re.compile(r"lib(cudart|cublas|cublasLt|nccl|cudnn)(?:[-.][0-9a-f]{8})?\.so\.\d+")
# Mangled names of torch's namespaces (c10, at, torch, caffe2, c10d), and its C interface.
_OF_TORCH = re.compile(r"_Z(?:T[VITSC]|GV)?N[KVRO]*(?:3c10|2at|5torch|6caffe2|4c10d)|(?:aoti_)?torch_|THP[A-Z]")
_OLD_STRING = re.compile(r"Ss(?![a-z])")
_NEW_STRING = "__cxx11"
TORCH = "torch"
_TORCH_LIBRARIES = ("libtorch.", "libtorch_", "libc10.", "libc10_")
_NUMBER = re.compile(r"\d+(\.\d+)*")
_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing wrong with one file: `kind`, `what`, and the `explanation` when it is known to do no harm.

    `library` is what it is about: a library, or a symbol version.
    """

    kind: str
    package: str
    file: str
    what: str
    library: str = ""
    explanation: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """What upstream is known to ship like this, files and libraries as patterns (`*`), and why it does no harm.

    `cuda` is the major of the sets that it holds for; empty for all.
    """

    package: str
    kind: str
    files: tuple[str, ...]
    libraries: tuple[str, ...]
    reason: str
    cuda: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loads:
    """Libraries that a package loads itself when it is imported, for those that depend on it; `reason` says how."""

    package: str
    libraries: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """optional_libraries.toml."""

    explained: tuple[Explained, ...] = ()
    loads: tuple[Loads, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The files to judge.

    `files` are by path; `owner` has the package of each path, `before` what is loaded before a package's files are:
    names of places.loaded. `provides` has the symbol versions of libraries outside, by path; `symbols` the undefined
    symbols of torch extensions, `torch_symbols` those that torch has. `root` is the folder that files are named from.
    """

    root: str
    files: Mapping[str, Elf]
    places: Places
    owner: Mapping[str, str] = field(default_factory=dict)
    before: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    provides: Mapping[str, frozenset[str]] = field(default_factory=dict)
    symbols: Mapping[str, set[str]] = field(default_factory=dict)
    torch_symbols: frozenset[str] = frozenset()
    cuda: str | None = None

    def loaded_before(self, file: Elf) -> tuple[str, ...]:
        """Return what is loaded when this file is; an extension of torch is imported after torch, whoever's it is."""
        before = self.before.get(self.owner.get(file.path, ""), ())
        return (*before, TORCH) if uses_torch(file) and TORCH not in before else before


def uses_torch(file: Elf) -> bool:
    """Whether a file is an extension of torch."""
    return any(name.startswith(_TORCH_LIBRARIES) for name in file.needed)


def judge(subject: Subject, known: Known) -> tuple[Finding, ...]:
    """Return every finding, those that are explained with their explanation."""
    where = find_all(subject.files, subject.places, subject.loaded_before)
    found = [
        finding
        for file in sorted(subject.files.values(), key=lambda it: it.path)
        for finding in (*_libraries(file, subject, where[file.path]), *_symbols(file, subject))
    ]
    found += _copies(subject)
    major = (subject.cuda or "").split(".")[0]
    explained = [it for it in known.explained if it.cuda in ("", major)]
    return tuple(_explain(finding, explained) for finding in found)


def _explain(finding: Finding, known: Iterable[Explained]) -> Finding:
    """Give a finding its explanation, if there is one for its package, kind, file and library."""
    for it in known:
        if (
            (it.package, it.kind) == (finding.package, finding.kind)
            and any(fnmatchcase(finding.file, pattern) for pattern in it.files)
            and any(fnmatchcase(finding.library, pattern) for pattern in it.libraries)
        ):
            return replace(finding, explanation=it.reason)
    return finding


def _finding(kind: str, file: Elf, subject: Subject, what: str, library: str = "") -> Finding:
    package, name = subject.owner.get(file.path, ""), os.path.relpath(file.path, subject.root)
    return Finding(kind=kind, package=package, file=name, what=what, library=library)


def _libraries(file: Elf, subject: Subject, found: Mapping[str, str | None]) -> Iterator[Finding]:
    """Judge where each library that a file needs was found, and the versions that it needs of it."""
    for name, path in found.items():
        other = _of_other_cuda(name, subject.cuda)
        if path is None:
            yield _finding(MISSING, file, subject, f"needs {name}, which is nowhere{other}", name)
        elif other:
            yield _finding(MAJOR, file, subject, f"needs {name}{other}; it is found at {path}", name)
    for name, version in file.wants:
        path = found.get(name)
        if path in (None, IN_DRIVER):
            continue
        has = subject.files[path].defines if path in subject.files else subject.provides.get(path, frozenset())
        if has and version not in has:
            family = version.rpartition("_")[0]
            newest = f"; the newest {family} there is {_newest(has, family)}" if family else ""
            yield _finding(VERSION, file, subject, f"needs {version} of {name}, which {path} has not{newest}", version)


def _of_other_cuda(name: str, cuda: str | None) -> str:
    """Say of which CUDA a library is, when it is not the row's."""
    match = _CUDA_MAJOR.fullmatch(name)
    if match is None or cuda is None or match[1] == cuda.split(".")[0]:
        return ""
    return f" (of CUDA {match[1]}; this set is CUDA {cuda})"


def _newest(versions: Iterable[str], family: str) -> str:
    """Return the newest version of a family, as `GLIBC_2.36`."""
    numbers = [version.removeprefix(f"{family}_") for version in versions if version.startswith(f"{family}_")]
    newest = max((it for it in numbers if _NUMBER.fullmatch(it)), key=Version, default="")
    return f"{family}_{newest}" if newest else "none"


def _symbols(file: Elf, subject: Subject) -> Iterator[Finding]:
    """Hold the torch symbols that an extension asks for against those that torch has."""
    lacking = sorted(
        name
        for name in subject.symbols.get(file.path, ())
        if _OF_TORCH.match(name) and name not in subject.torch_symbols
    )
    if not lacking:
        return
    more = f" and {len(lacking) - _SHOWN} more" if len(lacking) > _SHOWN else ""
    why = _abi(lacking, subject.torch_symbols)
    yield _finding(SYMBOL, file, subject, f"torch has no {', '.join(lacking[:_SHOWN])}{more}: {why}")


def _abi(lacking: list[str], torch_symbols: frozenset[str]) -> str:
    """Say whether an extension was compiled with the other std::string, or for another torch."""
    torch_is_new = any(_NEW_STRING in name for name in torch_symbols)
    old = any(_OLD_STRING.search(name) and _NEW_STRING not in name for name in lacking)
    new = any(_NEW_STRING in name for name in lacking)
    if torch_is_new and old and not new:
        return "it was compiled with _GLIBCXX_USE_CXX11_ABI=0, and torch with 1"
    if not torch_is_new and new:
        return "it was compiled with _GLIBCXX_USE_CXX11_ABI=1, and torch with 0"
    return "it was compiled for another torch release"


def _copies(subject: Subject) -> Iterator[Finding]:
    """Find libraries that are there more than once, and copies of the other CUDA major."""
    copies: dict[str, list[Elf]] = {}
    for file in subject.files.values():
        name = os.path.basename(file.path)
        if match := _ONE_EACH.fullmatch(name):
            copies.setdefault(match[1], []).append(file)
        if other := _of_other_cuda(name, subject.cuda):
            yield _finding(MAJOR, file, subject, f"is {name}{other}", name)
    for name, several in copies.items():
        first, *others = sorted(several, key=lambda it: (subject.owner.get(it.path, "")[:7] != "nvidia-", it.path))
        for file in others:
            kept = os.path.relpath(first.path, subject.root)
            yield _finding(TWICE, file, subject, f"is a second lib{name}, beside {kept}", name)
