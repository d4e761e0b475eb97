"""What differs between two lists, grouped by what matters. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.version import InvalidVersion, Version

from verl_env.capture.listing import UNCOMMITTED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from verl_env.capture.listing import Listed, Listing
    from verl_env.matrix.facts import Facts

GROUPS = ("environment", "torch", "engine", "cuda", "rest", "files")
_TORCH = re.compile(r"torch|torchvision|torchaudio|torchdata|torchcodec|torchao|triton|pytorch-triton|xformers")
_ENGINE = re.compile(
    r"verl|vllm|sglang|sgl-kernel|sglang-kernel|flashinfer.*|flash-attn.*|ray|transformers|tokenizers|tensordict|"
    r"xgrammar|compressed-tensors|megatron-core|transformer-engine.*|liger-kernel|mbridge"
)
_CUDA = re.compile(r"nvidia-.*|cuda-.*|cupy.*|cutlass.*|vllm-nccl-.*")
# A venv or an interpreter brings them; whether a lock names them is chance.
_BOOTSTRAP = frozenset({"pip", "setuptools", "wheel", "distribute"})
# What installers write of their own into a package's folder.
_OWN = re.compile(
    r"\.\./.*|[^/]+\.(dist|egg)-info/(direct_url\.json|uv_cache\.json|uv_build\.json|INSTALLER|REQUESTED|RECORD)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One thing that is not the same; None on the side that has none of it. `group` is one of GROUPS."""

    group: str
    name: str
    left: str | None
    right: str | None

    @property
    def text(self) -> str:
        """The difference on one line."""
        return f"{self.name}: {self.left or 'none'} -> {self.right or 'none'}"


def group_of(name: str) -> str:
    """Return the group of a package."""
    for group, pattern in (("torch", _TORCH), ("engine", _ENGINE), ("cuda", _CUDA)):
        if pattern.fullmatch(name):
            return group
    return "rest"


def compare(left: Listing, right: Listing, facts: Facts | None = None) -> tuple[Difference, ...]:
    """Return what differs, in the order of GROUPS; what a partial list does not name is no difference."""
    found = [*_surroundings(left, right), *_packages(left, right, facts)]
    return tuple(sorted(found, key=lambda it: (GROUPS.index(it.group), it.name)))


def _surroundings(left: Listing, right: Listing) -> Iterator[Difference]:
    for name, one, other in (
        ("row", left.row, right.row),
        ("CUDA", left.cuda, right.cuda),
        ("machine", left.machine, right.machine),
    ):
        if one and other and one != other:
            yield Difference(group="environment", name=name, left=one, right=other)
    if left.python and right.python and not _same_python(left.python, right.python):
        yield Difference(group="environment", name="Python", left=left.python, right=right.python)


def _same_python(one: str, other: str) -> bool:
    """Compare as exactly as both say: 3.12 is 3.12.3."""
    parts = list(zip(one.split("."), other.split("."), strict=False))
    return all(left == right for left, right in parts)


def _packages(left: Listing, right: Listing, facts: Facts | None) -> Iterator[Difference]:
    ours, theirs = _by_name(left), _by_name(right)
    machine = left.machine or right.machine or "x86_64"
    for name in sorted(ours.keys() | theirs.keys()):
        one, other = ours.get(name), theirs.get(name)
        if one is None or other is None:
            yield from _one_sided(name, one, other, left, right)
        elif one.version and other.version and not same_version(name, one.version, other.version, facts, machine):
            yield Difference(group=group_of(name), name=name, left=one.version, right=other.version)
        elif (one.vcs and one.vcs.commit) != (other.vcs and other.vcs.commit):
            yield Difference(group=group_of(name), name=name, left=_origin(one), right=_origin(other))
        elif not one.version and one.spec and other.version and not _admits(one.spec, other.version):
            yield Difference(group=group_of(name), name=name, left=one.spec, right=other.version)
        else:
            yield from _contents(one, other, left, right)


def _by_name(listing: Listing) -> dict[str, Listed]:
    """Return the packages by name; a later line of the same name does not replace the first."""
    found: dict[str, Listed] = {}
    for package in listing.packages:
        found.setdefault(package.name, package)
    return found


def _one_sided(
    name: str, one: Listed | None, other: Listed | None, left: Listing, right: Listing
) -> Iterator[Difference]:
    """Yield a package that only one side has, where the other side means to name every package."""
    there = one or other
    silent = right if one else left
    if there is None or not silent.complete or there.foreign or name in _BOOTSTRAP:
        return
    said = there.version or there.spec or _origin(there)
    yield Difference(group=group_of(name), name=name, left=said if one else None, right=said if other else None)


def _origin(package: Listed) -> str:
    if package.vcs:
        return f"{package.version or ''} {package.vcs.kind} {(package.vcs.commit or 'no commit')[:12]}".strip()
    return package.version or package.spec or "no version"


def same_version(name: str, one: str, other: str, facts: Facts | None, machine: str) -> bool:
    """Compare versions; a build's label that one side leaves out is looked up: 2.11.0 is 2.11.0+cu130 by default."""
    try:
        left, right = Version(one), Version(other)
    except InvalidVersion:
        return one == other
    if left == right:
        return True
    if left.public != right.public or (left.local and right.local):
        return False
    if facts is None:
        return True
    bare, label = (one, right.local) if right.local else (other, left.local)
    default = facts.build(name, bare, machine=machine)
    return default is None or default.local is None or default.local == label


def _admits(spec: str, version: str) -> bool:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        return SpecifierSet(spec).contains(version, prereleases=True)
    except InvalidSpecifier:
        return spec == version


def _contents(one: Listed, other: Listed, left: Listing, right: Listing) -> Iterator[Difference]:
    """Compare the files of the same version: by hash where both know them, else by who was edited."""
    if one.editable or other.editable:
        here, there = _uncommitted(one), _uncommitted(other)
        if here != there:
            name = f"{one.name}: {UNCOMMITTED}"
            yield Difference(group="files", name=name, left=_short(here), right=_short(there))
        return
    if one.contents is not None and other.contents is not None:
        for path in sorted(one.contents.keys() | other.contents.keys()):
            here, there = one.contents.get(path), other.contents.get(path)
            if here != there and not _OWN.fullmatch(path):
                yield Difference(group="files", name=f"{one.name}: {path}", left=_short(here), right=_short(there))
        return
    for path in sorted(set(one.edits) ^ set(other.edits)):
        patched = right.patched if path in one.edits else left.patched
        if path not in patched:
            states = ("edited", "as published") if path in one.edits else ("as published", "edited")
            yield Difference(group="files", name=f"{one.name}: {path}", left=states[0], right=states[1])
    if one.hashes and other.hashes and not set(one.hashes) & set(other.hashes):
        yield Difference(group="files", name=f"{one.name}: file", left=one.hashes[0], right=other.hashes[0])


def _uncommitted(package: Listed) -> str | None:
    """Return the hash of what a checkout has beyond its commit; its files themselves lie elsewhere."""
    return (package.contents or {}).get(UNCOMMITTED) if package.editable else None


def _short(digest: str | None) -> str | None:
    return digest and digest[:12]
