"""`verl-env list`: the environments of this node."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

from verl_env.environment.standing import standing
from verl_env.output import Result, human_bytes

if TYPE_CHECKING:
    import argparse

    from verl_env.environment.standing import Standing

_HEAD = ("", "name", "python", "size", "age", "proof", "device", "what")
_STEPS = ((86_400, "d"), (3600, "h"), (60, "min"))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take nothing but what every command takes."""


def run(_args: argparse.Namespace) -> Result:
    """List complete environments, oldest first, then unfinished ones; reads receipts and no more."""
    found = standing()
    data = {"environments": [plain(it) for it in found]}
    if not found:
        return Result(data=data, text="no environment is here yet; build one: verl-env install")
    rows = [_HEAD, *(_row(it) for it in found)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(_HEAD))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return Result(data=data, text="\n".join(lines))


def plain(it: Standing) -> dict[str, Any]:
    """Return one environment as scripts read it."""
    receipt = it.receipt
    about = {"name": it.folder.name, "folder": str(it.folder), "current": it.current, "complete": receipt is not None}
    if receipt is None:
        return about
    return about | {
        "replaced_by": it.replaced,
        "row": receipt.row,
        "title": receipt.title,
        "lock_digest": receipt.lock_digest,
        "python": receipt.python,
        "level": receipt.best[0],
        "device": receipt.best[1],
        "made": receipt.made,
        "files": receipt.files,
        "bytes": receipt.bytes,
    }


def _row(it: Standing) -> tuple[str, ...]:
    mark, name, receipt = "*" if it.current else "", it.folder.name, it.receipt
    if receipt is None:
        return mark, name, "", "", "", "", "", "unfinished"
    size = human_bytes(receipt.bytes) if receipt.bytes else "-"
    what = f"replaced by {it.replaced}" if it.replaced else receipt.title
    return mark, name, receipt.python, size, age_of(receipt.made), *receipt.best, what


def age_of(made: str) -> str:
    """Return how long ago a receipt was written, in its largest unit."""
    try:
        seconds = (dt.datetime.now(dt.timezone.utc) - dt.datetime.fromisoformat(made)).total_seconds()
    except (ValueError, TypeError):
        return "?"
    for step, unit in _STEPS:
        if seconds >= step:
            return f"{seconds // step:.0f} {unit}"
    return "now"
