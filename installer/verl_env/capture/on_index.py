"""Which file of an index each package of a list is, and which cannot be had. An edge: it asks through uv."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from verl_env import uv
from verl_env.capture.unavailable import Unavailable, absent
from verl_env.errors import ResolveError, VerlEnvError
from verl_env.indexes import masked
from verl_env.lock.locate import Place, clean_url, source_options
from verl_env.lock.render import file_of
from verl_env.matrix.pins import Pin
from verl_env.matrix.tags import rank_of, supported_tags

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from packaging.tags import Tag

    from verl_env.capture.listing import Listed
    from verl_env.indexes import Indexes
    from verl_env.matrix.facts import Facts

# The order in which certainty falls: the very wheel by a hash or its RECORD; the only wheel with the installed one's
# tags; the wheel that this Python would get; an sdist that is built again.
SURE = ("hash", "record", "tags", "version", "built")
_NAMED = re.compile(r"(?<![\w.-])([a-z0-9][a-z0-9._-]*)(?:==| was not found| \(v?[0-9]| has no )")
_MOST_ROUNDS = 80
_NEWEST_GLIBC = "2.39"
# Their sdists compile CUDA code against the torch that is there: hours, and another binary each time.
_COMPILED_HERE = frozenset(
    {"flash-attn", "apex", "transformer-engine", "transformer-engine-torch", "deepspeed-kernels"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A package to find: its exact version, and what is known of its file."""

    name: str
    version: str
    tags: tuple[str, ...] = ()
    hashes: tuple[str, ...] = ()
    source: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A package that was found: its pin, where, and how sure it is that this is the file that was installed."""

    pin: Pin
    url: str
    sure: str


@dataclass(slots=True, kw_only=True)
class _Answers:
    """What was found so far, and why the rest was not: per package, the last place's words."""

    held: dict[str, Held] = field(default_factory=dict)
    causes: dict[str, str] = field(default_factory=dict)
    unfit: dict[str, Unavailable] = field(default_factory=dict)

    def open(self, wanted: Sequence[Wanted]) -> list[Wanted]:
        """Return what no place had a wheel of yet."""
        return [it for it in wanted if it.name not in self.held or self.held[it.name].sure == "built"]


def find_files(
    wanted: Sequence[Wanted], python: str, arch: str, indexes: Indexes, facts: Facts
) -> tuple[tuple[Held, ...], tuple[Unavailable, ...]]:
    """Find each package's file: on the default index, in what is near, and on the index that its label names.

    Each place is asked by itself: a release in one that has it for other Pythons would hide the right one in the next.
    """
    answers = _Answers()
    tags = supported_tags(python, arch, _NEWEST_GLIBC)
    asked = [_as_default_build(it, wanted, facts, arch) for it in wanted]
    for place in _default_places(indexes):
        _ask(answers.open(asked), "default", python, place, answers, tags)
    for source, group in _by_source(answers.open(asked), facts).items():
        pins = tuple(Pin(name=it.name, version=it.version, file="", size=0, sha256="") for it in group)
        for option, url in source_options(source, pins, indexes, facts):
            _ask(answers.open(group), source, python, Place(option=option, url=url), answers, tags)
    held = tuple(answers.held[it.name] for it in wanted if it.name in answers.held)
    missing = (it for it in wanted if it.name not in answers.held)
    return held, tuple(
        answers.unfit.get(it.name) or absent(it.name, it.version, answers.causes.get(it.name, "")) for it in missing
    )


def _default_places(indexes: Indexes) -> tuple[Place, ...]:
    """Return the default index, then folders and further indexes that are set up here."""
    default = Place(option="--default-index" if indexes.default else "", url=indexes.default or "")
    folders = tuple(Place(option="--find-links", url=it) for it in indexes.find_links)
    return (default, *folders, *(Place(option="--index", url=it) for it in indexes.extra))


def _as_default_build(wanted: Wanted, every: Sequence[Wanted], facts: Facts, arch: str) -> Wanted:
    """Look for the default index's build where it is the labelled one: torch 2.6.0+cu124 is its 2.6.0."""
    public, _, label = wanted.version.partition("+")
    torch = next((it.version.partition("+")[0] for it in every if it.name == "torch"), None)
    if not label or torch is None or wanted.name not in ("torch", "torchvision", "torchaudio"):
        return wanted
    try:
        build = facts.build("torch", torch, machine=arch)
    except InvalidVersion:
        return wanted
    return replace(wanted, version=public) if build and build.local == label else wanted


def _by_source(wanted: Sequence[Wanted], facts: Facts) -> dict[str, list[Wanted]]:
    """Group packages by the sources that their names and labels point to."""
    groups: dict[str, list[Wanted]] = {}
    for it in wanted:
        for source in _sources_of(it, facts):
            groups.setdefault(source, []).append(it)
    return groups


def _sources_of(wanted: Wanted, facts: Facts) -> Iterator[str]:
    """Yield the symbols of mirrors.toml that may serve a package: pytorch-cu124 for torch 2.6.0+cu124."""
    try:
        label = Version(wanted.version).local or ""
    except InvalidVersion:
        return
    kind = re.match(r"cpu|cu[0-9]+", label)
    for project, names in _PROJECTS.items():
        if re.fullmatch(names, wanted.name):
            symbols = [f"{project}-{kind[0]}" if kind else "", project]
            yield from (it for it in symbols if it and facts.source(it) is not None)


_PROJECTS = {
    "pytorch": r"torch|torchvision|torchaudio|torchcodec|torchao|triton|pytorch-triton|xformers|fbgemm-gpu.*",
    "vllm": r"vllm",
    "flashinfer": r"flashinfer-.*",
    "sglang": r"sgl-kernel|sglang-kernel",
    "flash-attn": r"flash-attn",
}


def _ask(
    wanted: Sequence[Wanted], source: str, python: str, place: Place, answers: _Answers, tags: dict[Tag, int]
) -> None:
    """Let uv list the files of these releases; it names what is absent one at a time, so ask again without that."""
    asking = {it.name: it for it in wanted}
    for _ in range(_MOST_ROUNDS):
        if not asking:
            return
        try:
            document = _list_releases(list(asking.values()), python, (*place.alone, "--index-strategy", "first-index"))
        except ResolveError as err:
            absent = [it for it in dict.fromkeys(_NAMED.findall("\n".join(err.details))) if it in asking]
            for name in absent[:1] or list(asking):
                answers.causes.setdefault(name, _cause(err))
                del asking[name]
            continue
        for package in document["packages"]:
            _take(asking[package["name"]], package, source, answers, tags)
        return
    answers.causes.update(dict.fromkeys(asking, "too many others are missing"))


def _take(wanted: Wanted, package: dict[str, Any], source: str, answers: _Answers, tags: dict[Tag, int]) -> None:
    """Keep the better of what this place has and what was found before."""
    found = _choose(wanted, package, source, tags)
    before = answers.held.get(wanted.name)
    if isinstance(found, Unavailable):
        answers.unfit[wanted.name] = found
    elif before is None or SURE.index(found.sure) < SURE.index(before.sure):
        answers.held[wanted.name] = found


def _list_releases(wanted: Sequence[Wanted], python: str, options: Sequence[str]) -> dict[str, Any]:
    """Ask for exact releases without dependencies; static metadata keeps uv from building an sdist to read it."""
    requirements = "".join(f"{it.name}=={it.version}\n" for it in wanted)
    metadata = "".join(
        f'[[dependency-metadata]]\nname = "{it.name}"\nversion = "{it.version}"\nrequires-dist = []\n' for it in wanted
    )
    words = ["--universal", "--no-deps", "--prerelease", "allow", "--python-version", python]
    return uv.compile_pylock(requirements, [*words, "--config-file", "uv.toml", *options], {"uv.toml": metadata})


def _cause(err: VerlEnvError) -> str:
    """Return the line of uv's that says why, without its conclusion."""
    said = [line.strip() for line in err.details if line.strip() and not line.strip().startswith("hint:")]
    because = next((it for it in said if "ecause " in it), said[-1] if said else err.message)
    return masked(because.removeprefix("cause: ").removeprefix("error: ").split(", we can conclude")[0])


def _choose(wanted: Wanted, package: dict[str, Any], source: str, tags: dict[Tag, int]) -> Held | Unavailable:
    """Pick the file that was installed, or the one that this Python would get."""
    wheels = [it for it in package.get("wheels", ()) if it.get("hashes", {}).get("sha256")]
    sdist = package.get("sdist")
    if sdist and not sdist.get("hashes", {}).get("sha256"):
        sdist = None
    for file in (*wheels, sdist):
        if file and f"sha256:{file['hashes']['sha256']}" in wanted.hashes:
            return _held(wanted, package, file, source, "hash")
    same = [it for it in wheels if wanted.tags and _tags_of(_name(it)) == frozenset(wanted.tags)]
    if len(same) == 1:
        return _held(wanted, package, same[0], source, "tags")
    ranked = [(rank, it) for it in wheels if (rank := rank_of(_name(it), tags)) is not None]
    if ranked:
        return _held(wanted, package, min(ranked, key=lambda it: it[0])[1], source, "version")
    if sdist and wanted.name not in _COMPILED_HERE:
        return _held(wanted, package, sdist, source, "built")
    what = "only as source that compiles CUDA code" if sdist else "with no wheel for this Python"
    return Unavailable(
        name=wanted.name,
        version=wanted.version,
        reason="no-wheel",
        what=f"{wanted.name} {wanted.version} is on the index {what}",
        remedy="name an index or a folder that has a wheel: --index URL, UV_FIND_LINKS=DIR",
    )


def _held(wanted: Wanted, package: dict[str, Any], file: dict[str, Any], source: str, sure: str) -> Held:
    pin = Pin(
        name=wanted.name,
        version=str(package["version"]),
        file=_name(file),
        size=int(file.get("size", 0)),
        sha256=file["hashes"]["sha256"],
        source=source,
    )
    return Held(pin=pin, url=clean_url(file.get("url") or file.get("path", "")), sure=sure)


def _name(file: dict[str, Any]) -> str:
    return str(file.get("name") or file_of(file.get("url") or file["path"]))


def _tags_of(file: str) -> frozenset[str]:
    """Return the expanded tags of a wheel's name, as its WHEEL file lists them."""
    try:
        return frozenset(str(it) for it in parse_wheel_filename(file)[3])
    except InvalidWheelFilename:
        return frozenset()


def wanted_of(package: Listed, tags: tuple[str, ...] = ()) -> Wanted:
    """Return what to look for, for one line of a list that names a version."""
    return Wanted(name=package.name, version=package.version or "", tags=tags, hashes=package.hashes)


def files_of(wanted: Wanted, package: dict[str, Any], source: str, python: str, arch: str) -> Held | Unavailable:
    """Pick the file of one package that uv has listed already."""
    return _choose(wanted, package, source, supported_tags(python, arch, _NEWEST_GLIBC))
