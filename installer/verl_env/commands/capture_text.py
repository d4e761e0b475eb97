"""What `capture` says: as data for scripts, and in words."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from verl_env.capture.understood import describe_listing, fit_line, summary
from verl_env.records import to_plain

if TYPE_CHECKING:
    import argparse

    from verl_env.capture.work import Capture

_SHOWN = 12
_REACHED_BACK = (
    "note: an edited file is a hard link: written in place, the edit is also in uv's cache, and in every environment "
    "that was linked from there; verl-env verify and repair find it and mend it in those of verl-env"
)
_SURE = {
    "hash": "by hash",
    "record": "by the hashes of all their files",
    "tags": "by version and tags",
    "version": "by version; the wheel that this Python would get",
    "built": "built from source again",
}


def data_of(capture: Capture) -> dict[str, Any]:
    """Return everything; `nearest` is a row's id or null."""
    understood, near = capture.understood, capture.understood.nearest
    condition = capture.environment.condition if capture.environment else None
    return {
        "subject": describe_listing(capture.listing, capture.matrix),
        "nearest": near.entry.id if near else None,
        "distance": near.distance if near else None,
        "apart": list(near.apart) if near else [],
        "fit": _fit(understood.fit),
        "runs": _fit(understood.runs),
        "differences": [to_plain(it) for it in capture.differences],
        "unavailable": [to_plain(it) for it in capture.unavailable],
        "packages": [
            {
                "name": it.pin.name,
                "version": it.pin.version,
                "file": it.pin.file,
                "source": it.pin.source,
                "sure": it.sure,
                "doubt": capture.doubts.get(it.pin.name),
            }
            for it in capture.held
        ],
        "git": [to_plain(it) for it in capture.git],
        "build": [to_plain(it) for it in capture.build],
        "condition": _condition(capture) if condition else None,
        "patched": [to_plain(it) for it in capture.patch.files] if capture.patch else [],
        "file": str(capture.written) if capture.written else None,
        "written": capture.written is not None,
        "digest": capture.lock.table.digest if capture.lock else None,
        "row": capture.lock.table.row if capture.lock else None,
        "notes": [*capture.listing.notes, *(capture.plan.notes if capture.plan else ())],
    }


def _fit(fit: Any) -> dict[str, Any] | None:
    if fit is None:
        return None
    return {"id": fit.entry.id, "verdict": fit.verdict, "reasons": list(fit.reasons), "notes": list(fit.notes)}


def _condition(capture: Capture) -> dict[str, Any]:
    environment = capture.environment
    condition = environment.condition if environment else None
    if environment is None or condition is None:
        return {}
    return {
        "checked": condition.checked,
        "files": [to_plain(it) for it in condition.files],
        "unowned": list(condition.unowned),
        "faults": list(environment.faults),
        "startup": list(environment.layout.startup),
        "layout": environment.layout.kind,
    }


def text_of(capture: Capture, args: argparse.Namespace) -> str:
    """Say it in words: what it is, what it is nearest to, what differs, what cannot be had, what was written."""
    lines = [summary(capture.listing)]
    lines += [f"note: {it}" for it in (*capture.listing.notes, *(capture.plan.notes if capture.plan else ()))]
    lines += _nearest(capture)
    lines += _condition_lines(capture)
    lines += _differences(capture)
    lines += [f"cannot be had: {it.what}" + (f"; {it.remedy}" if it.remedy else "") for it in capture.unavailable]
    if capture.held:
        counts = Counter(it.sure for it in capture.held)
        lines += [f"{counts[sure]} packages {words}" for sure, words in _SURE.items() if counts[sure]]
    lines += [f"{it.name} {it.version}: from {it.url} at {it.commit[:12]}" for it in capture.git]
    if capture.build:
        lines.append("builds get " + ", ".join(f"{it.name} {it.version}" for it in capture.build))
    lines += [f"doubt: {name}: {why}" for name, why in sorted(capture.doubts.items())[:_SHOWN]]
    lines += _outcome(capture, args)
    return "\n".join(lines)


def _nearest(capture: Capture) -> list[str]:
    understood, near = capture.understood, capture.understood.nearest
    if near is None:
        return ["no row is near: it names neither torch, nor an engine, nor verl"]
    lines = [f"nearest row: {near.entry.id} ({near.entry.row.title}, {near.entry.status()})"]
    lines += [f"  {it}" for it in near.apart[:_SHOWN]]
    if understood.fit:
        lines.append(f"on that node, {fit_line(understood.fit)}")
    if understood.runs and understood.fit and understood.runs.entry.id != understood.fit.entry.id:
        lines.append(f"a row that runs there: {fit_line(understood.runs)}")
    elif understood.fit and not understood.fit.fits and understood.runs is None:
        lines.append("no row runs there")
    return lines


def _condition_lines(capture: Capture) -> list[str]:
    environment = capture.environment
    condition = environment.condition if environment else None
    if environment is None or condition is None:
        return []
    lines = []
    for state in ("edited", "missing", "overwritten"):
        found = condition.of(state)
        lines += [f"{state}: {it.package}: {it.path}" + (f" (by {it.by})" if it.by else "") for it in found[:_SHOWN]]
        lines += [f"  and {len(found) - _SHOWN} more {state}"] if len(found) > _SHOWN else []
    if any(it.linked for it in condition.of("edited")):
        lines.append(_REACHED_BACK)
    lines += [f"owned by no package: {it}" for it in condition.unowned[:_SHOWN]]
    lines += [f"broken: {it}" for it in environment.faults[:_SHOWN]]
    if environment.layout.startup:
        lines.append(f"not run: code in {', '.join(environment.layout.startup)}")
    return lines


def _differences(capture: Capture) -> list[str]:
    found = capture.differences
    if not found:
        return ["the same as that row in all that it names"] if capture.understood.nearest else []
    told = [it for it in found if it.group in ("environment", "torch", "engine", "cuda", "files")]
    lines = [f"{len(found)} differences from it:"]
    lines += [f"  {it.text}" for it in told[:_SHOWN]]
    rest = len(found) - len(told[:_SHOWN])
    return [*lines, f"  and {rest} more: verl-env diff, or --json"] if rest else lines


def _outcome(capture: Capture, args: argparse.Namespace) -> list[str]:
    if args.no_lock:
        return []
    if capture.lock is None:
        return ["no lock was written: --partial writes one of what can be had"]
    verb = "wrote" if capture.written else "would write"
    table = capture.lock.table
    name = capture.written.name if capture.written else f"pylock.{args.name}.toml"
    lines = [f"{verb} {name}: {len(capture.lock.pins)} packages, Python {table.python}, {table.digest}"]
    if capture.patch:
        lines.append(f"{verb} its patch of {len(capture.patch.files)} files beside it")
    elif capture.environment and capture.environment.condition and capture.environment.condition.of("edited"):
        lines.append("the edits are not in it: --with-patches keeps them")
    return lines
