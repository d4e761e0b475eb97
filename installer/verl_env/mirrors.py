"""`--mirror`: public mirrors by name, or the fastest of them as measured now. What a file is, its pin says.

Measuring asks each place for one small page and reads the first bytes of one wheel, all places at once, within a few
seconds. A mirror is taken only when it is clearly faster than what is set up.
"""

from __future__ import annotations

import difflib
import json
import re
import threading
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from urllib.parse import urljoin

from verl_env import fetch, output
from verl_env.errors import UsageError
from verl_env.indexes import MirrorExport, masked

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from verl_env.indexes import Indexes
    from verl_env.matrix.facts import Facts, MirrorSet

AUTO, AS_SET_UP = "auto", "as set up"
_SECONDS = 8.0  # for all places together
_READ_SECONDS = 3.0  # of one wheel
_READ_BYTES = 2_000_000
_CLEARLY = 1.25  # times faster, before a mirror is taken: two measurements of one place differ by as much
# What a stack costs: requests for its pages, and its bytes. Only the order of places comes from these.
_REQUESTS, _BYTES = 300, 4_000_000_000
# The source that stands for a group, and a package on it whose wheels have one to ten megabytes.
_GROUPS = {"default": ("default", "pip"), "pytorch": ("pytorch-cpu", "torchaudio")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One place: seconds to its first page and bytes a second after that, or why there is no figure."""

    name: str
    seconds: float = 0.0
    rate: float = 0.0
    error: str = ""

    @property
    def cost(self) -> float:
        """Return the seconds that a stack would take from here."""
        return float("inf") if self.error else _REQUESTS * self.seconds + _BYTES / max(self.rate, 1.0)

    @property
    def said(self) -> str:
        """Say it in a few words."""
        figures = f"{self.seconds:.2f} s to a page, {output.human_bytes(self.rate)}/s"
        return f"{self.name}: {self.error or figures}"


def with_mirrors(indexes: Indexes, given: str, facts: Facts, *, asked: bool = False) -> Indexes:
    """Return the indexes with the named mirrors before them; raises UsageError for a name that is not known.

    With `asked` the default index was named by hand (`--index`), and stays.
    """
    for name in dict.fromkeys(part.strip() for part in given.split(",") if part.strip()):
        if name == AUTO:
            indexes = _fastest(indexes, facts, asked=asked)
        else:
            indexes = _with_set(indexes, _set_named(name, facts), facts, _GROUPS, asked=asked)
    return indexes


def _set_named(name: str, facts: Facts) -> MirrorSet:
    known = {it.id: it for it in facts.mirror_sets}
    if name not in known:
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean `{close[0]}`? " if close else ""
        raise UsageError(f"no mirror is called `{name}`", hint=f"{hint}known: auto, {', '.join(known)}")
    return known[name]


def _with_set(indexes: Indexes, chosen: MirrorSet, facts: Facts, groups: Iterable[str], *, asked: bool) -> Indexes:
    """Put one set's places before the others, and note what it asks for."""
    places = {
        source.symbol: ("--find-links" if it.links else "--index", it.url)
        for source in facts.sources
        for it in source.mirrors
        if chosen.name and it.name == chosen.name and _group_of(source.symbol) in groups
    }
    default = places.pop("default", None)
    if default and not asked:
        former = (indexes.default,) if indexes.default else ()
        indexes = replace(indexes, default=default[1], extra=(*former, *indexes.extra))
    exports = tuple(
        MirrorExport(name=name, value=value, why=f"--mirror {chosen.id}", needs=chosen.needs)
        for name, value in chosen.exports.items()
    )
    if chosen.note:
        output.note(f"{chosen.id}: {chosen.note}")
    return replace(indexes, mirrors={**indexes.mirrors, **places}, exports=(*indexes.exports, *exports))


def _group_of(symbol: str) -> str:
    return symbol.partition("-")[0]


def _fastest(indexes: Indexes, facts: Facts, *, asked: bool) -> Indexes:
    """Measure every mirror beside what is set up, group by group, and take the best of each."""
    ids = {it.name: it.id for it in facts.mirror_sets if it.name}
    places: dict[tuple[str, str], tuple[str, str]] = {}
    for group, (symbol, package) in _GROUPS.items():
        source = facts.source(symbol)
        if source is None or (group == "default" and asked):
            continue
        own = indexes.by_source.get(symbol) or (_default(indexes) if group == "default" else source.url)
        places |= {(group, AS_SET_UP): (own, package)} if own else {}
        places |= {(group, ids[it.name]): (it.url, package) for it in source.mirrors if it.name in ids and not it.links}
    found = measure(places, indexes)
    for group in _GROUPS:
        mine = sorted((it for (of, _), it in found.items() if of == group), key=lambda it: it.cost)
        if name := best_of(mine):
            output.note(f"--mirror auto, {group}: {name} ({'; '.join(it.said for it in mine)})")
            if name != AS_SET_UP:
                indexes = _with_set(indexes, _set_named(name, facts), facts, (group,), asked=asked)
    return indexes


def best_of(measured: Sequence[Measured]) -> str | None:
    """Return the place to take: what is set up, unless another is clearly faster; None when nothing was measured."""
    if not measured:
        return None
    best = min(measured, key=lambda it: it.cost)
    here = next((it for it in measured if it.name == AS_SET_UP), None)
    if best.error or (here and not here.error and here.cost < best.cost * _CLEARLY):
        return AS_SET_UP
    return best.name


def _default(indexes: Indexes) -> str:
    from verl_env import uv

    return indexes.default or uv.default_index()


def measure(places: dict[tuple[str, str], tuple[str, str]], indexes: Indexes) -> dict[tuple[str, str], Measured]:
    """Measure all places at once; one that has not answered in time is left to end by itself."""
    found: dict[tuple[str, str], Measured] = {}

    def one(key: tuple[str, str], url: str, package: str) -> None:
        found[key] = _measure(key[1], url, package, indexes)

    threads = [threading.Thread(target=one, args=(key, *place), daemon=True) for key, place in places.items()]
    for thread in threads:
        thread.start()
    end = time.monotonic() + _SECONDS
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    late = f"no answer within {_SECONDS:.0f} s"
    return {key: found.get(key) or Measured(name=key[1], error=late) for key in places}


def _measure(name: str, url: str, package: str, indexes: Indexes) -> Measured:
    """Ask for a page, then read the start of a wheel that it names."""
    door = fetch.open_door(indexes)
    started = time.monotonic()
    try:
        page = door.page(f"{url.rstrip('/')}/{package}/")
        seconds = time.monotonic() - started
        wheel = wheel_on(page.text, page.kind)
        if wheel is None:
            return Measured(name=name, error=f"its page of {package} names no wheel")
        started, count = time.monotonic(), 0
        for block in door.stream(urljoin(page.url, wheel)):
            count += len(block)
            if count >= _READ_BYTES or time.monotonic() - started > _READ_SECONDS:
                break
        return Measured(name=name, seconds=seconds, rate=count / max(time.monotonic() - started, 1e-6))
    except fetch.FetchError as err:
        return Measured(name=name, error=masked(err.message))


def wheel_on(text: str, kind: str) -> str | None:
    """Return the last wheel that an index's page names (PEP 503 or PEP 691): the newest release, mostly."""
    if kind.endswith("json"):
        try:
            listed = [str(it["url"]) for it in json.loads(text)["files"] if it["filename"].endswith(".whl")]
        except (ValueError, KeyError, TypeError):
            return None
    else:
        listed = re.findall(r"""href=["']([^"'#]+\.whl)["'#]""", text)
    return listed[-1] if listed else None
