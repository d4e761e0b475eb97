"""Which row is nearest to what someone has. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from verl_env.matrix.fit import fit_row
from verl_env.matrix.rows import ENGINES
from verl_env.matrix.status import LEVELS
from verl_env.node.facts import Driver, Gpu, Node, Value

if TYPE_CHECKING:
    from verl_env.capture.listing import Listed, Listing
    from verl_env.matrix.facts import Facts
    from verl_env.matrix.fit import Fit
    from verl_env.matrix.matrix import Entry, Matrix

# How much each part of a set weighs: what everything else was compiled against counts most.
_WEIGHTS = {"torch": 10.0, "verl": 4.0, "transformers": 2.0, "ray": 1.0, "flashinfer-python": 1.0, "tensordict": 0.5}
_ENGINE_WEIGHT = 10.0
_CUDA_WEIGHT = 6.0
_PYTHON_WEIGHT = 1.0
_SAME_MINOR = 0.15  # of a weight: another patch of the same minor
_STEP = 0.12  # of a weight, for each minor in between
_OTHER = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Near:
    """A row and its distance from a list: 0 is the same in all that was compared. `apart` names what is not."""

    entry: Entry
    distance: float
    apart: tuple[str, ...]


def nearest_rows(listing: Listing, matrix: Matrix) -> tuple[Near, ...]:
    """Return the rows, nearest first; none when the list names nothing that rows are told apart by.

    A pair that cannot be mended is near only to a list that has that very pair.
    """
    every = [near for entry in matrix.entries.values() if (near := _near(listing, entry))]
    found = [near for near in every if not near.distance or not near.entry.row.broken]
    found.sort(key=lambda it: it.entry.id)
    found.sort(key=lambda it: (it.distance, _least_proved(it.entry), _newest_first(it.entry)))
    return tuple(found)


def _least_proved(entry: Entry) -> int:
    """Return a number that is smaller the more was proved of a row; a broken one comes last."""
    status = entry.status()
    return -LEVELS.index(status) if status in LEVELS else 1


def _newest_first(entry: Entry) -> tuple[int, ...]:
    """Of two rows equally near, the newer verl comes first, then the newer engine, as when choosing."""
    row = entry.row
    verl, engine = Version(row.set["verl"]), Version(row.set[row.engine] if row.engine else "0")
    return tuple(-part for it in (verl, engine) for part in (*(*it.release, 0, 0, 0)[:3], it.post or 0))


def _near(listing: Listing, entry: Entry) -> Near | None:
    row = entry.row
    total, apart, compared = 0.0, [], False
    for name, weight in _WEIGHTS.items():
        there = listing.of(name)
        if there is None or name not in row.set:
            continue
        far = _far(there, row.set[name])
        compared = compared or far is not None
        total += weight * (far or 0.0)
        if far:
            apart.append(f"{name} {there.version or there.spec}, the row's is {row.set[name]}")
    engine, distance = _engine(listing, entry)
    compared = compared or distance is not None
    total += _ENGINE_WEIGHT * (distance or 0.0)
    apart += [engine] if engine else []
    for what, weight, far in _surroundings(listing, entry):
        total += weight * far
        apart.append(what)
    return Near(entry=entry, distance=round(total, 3), apart=tuple(apart)) if compared else None


def _far(there: Listed, wanted: str) -> float | None:
    """Return how far a version is from a row's, between 0 and 1; None when the list does not say."""
    try:
        other = Version(wanted)
        if there.version is None:
            admits = SpecifierSet(there.spec).contains(other.public, prereleases=True)
            return (0.0 if admits else _OTHER) if there.spec else None
        one = Version(there.version)
    except (InvalidSpecifier, InvalidVersion):
        return None
    if one.public == other.public:
        return 0.0
    if one.release[:2] == other.release[:2]:
        return _SAME_MINOR * (0.5 + min(0.5, 0.05 * abs(one.micro - other.micro)))
    steps = abs(_rank(one) - _rank(other))
    # Of a minor's patches, the one towards the list's own version is the nearer.
    towards = 0.001 * (other.micro if other > one else -other.micro)
    return min(_OTHER, _SAME_MINOR + _STEP * steps + towards)


def _rank(version: Version) -> int:
    """Return a number in which neighbouring minors differ by one: no project here had more than 40 of a major."""
    return version.major * 40 + min(version.minor, 39)


def _engine(listing: Listing, entry: Entry) -> tuple[str, float | None]:
    """Compare the engines: the one that both have, or that one has none of the other's."""
    row = entry.row
    here = [name for name in ENGINES if listing.of(name)]
    if not here:
        # A complete list without an engine is for other work; a partial one may only not name it.
        if listing.complete and listing.packages and row.engine:
            return f"no engine, the row has {row.engine_label}", 0.4
        return "", None
    if row.engine is None:
        return f"{here[0]}, the row has no engine", 1.0
    same = listing.of(row.engine)
    if same is None:
        return f"{here[0]}, the row has {row.engine_label}", 1.0
    far = _far(same, row.set[row.engine])
    # SGLang's environments before 0.5 held a vLLM, too, for its kernels.
    beside = 0.3 if row.engine == "vllm" and "sglang" in here else 0.0
    what = f"{same.name} {same.version or same.spec}, the row's is {row.set[row.engine]}" if far else ""
    return what, None if far is None else min(1.0, far + beside)


def _surroundings(listing: Listing, entry: Entry) -> list[tuple[str, float, float]]:
    """Compare CUDA and Python; return (what, weight, how far) where they differ."""
    row, found = entry.row, []
    cuda = listing.cuda or _label_cuda(listing)
    if (cuda or listing.driver or listing.gpus) and row.cuda is None:
        found.append((("a GPU" if cuda is None else f"CUDA {cuda}") + ", the row is for CPU work", _CUDA_WEIGHT, 1.0))
    elif cuda and row.cuda and Version(cuda).release[:2] != Version(row.cuda).release[:2]:
        one, other = Version(cuda), Version(row.cuda)
        far = 0.2 + 0.05 * abs(one.minor - other.minor) if one.major == other.major else 1.0
        found.append((f"CUDA {cuda}, the row's is {row.cuda}", _CUDA_WEIGHT, min(1.0, far)))
    torch = listing.of("torch")
    if row.cuda and torch and torch.version and torch.version.endswith("+cpu"):
        found.append((f"torch {torch.version}, the row is for CUDA {row.cuda}", _CUDA_WEIGHT, 1.0))
    if listing.minor and listing.minor not in row.python:
        found.append((f"Python {listing.python}, the row is for {', '.join(row.python)}", _PYTHON_WEIGHT, 1.0))
    return found


def _label_cuda(listing: Listing) -> str | None:
    """Return the CUDA in torch's label: `+cu124`."""
    torch = listing.of("torch")
    try:
        label = Version(torch.version).local if torch and torch.version else None
    except InvalidVersion:
        label = None
    named = re.fullmatch(r"cu([0-9]{2})([0-9])", label or "")
    return f"{named[1]}.{named[2]}" if named else None


def node_of(listing: Listing, facts: Facts) -> Node | None:
    """Return the node that a report was made on; None when it says nothing of one."""
    if not (listing.driver or listing.gpus):
        return None
    gpus = []
    for index, name in enumerate(listing.gpus):
        known = facts.gpu(name)
        capability = known.compute_capability if known else listing.capability
        gpus.append(Gpu(name=name, source="the report", index=index, compute_capability=capability))
    return Node(
        described=True,
        driver=Driver(version=listing.driver, source="the report") if listing.driver else None,
        gpus=tuple(gpus),
        nvidia_device=Value(value=", ".join(listing.gpus), source="the report") if listing.gpus else None,
        glibc=Value(value=listing.glibc, source="the report") if listing.glibc else None,
        machine=Value(value=listing.machine or "x86_64", source="the report"),
    )


def fit_of(entry: Entry, node: Node, facts: Facts) -> Fit:
    """Hold a row against the report's node."""
    variants = entry.variants(node.machine.value if node.machine else None)
    return fit_row(entry, variants[0] if variants else None, node, facts, for_cpu=False)
