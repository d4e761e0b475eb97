"""How the nodes of a cluster are shown: a table, what differs, and the row for all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from verl_env.cluster.facts import NONE, Seen, gpus_of
from verl_env.output import human_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from verl_env.cluster.agree import Agreement, Difference
    from verl_env.matrix.fit import Fit

_HEAD = ("node", "driver", "GPUs", "glibc", "free", "environment", "proof")
_SHOWN = 6  # nodes named in one line
_DIGEST = 12  # characters of a digest that people are shown


def plain_seen(it: Seen) -> dict[str, Any]:
    """Return one node as scripts read it."""
    node, folder, current = it.node, it.folder, it.current
    return {
        "name": it.name,
        "address": it.member.address,
        "error": it.error or None,
        "python": it.python or None,
        "driver": node.driver.version if node and node.driver else None,
        "gpus": [gpu.name for gpu in node.gpus] if node else [],
        "glibc": node.glibc.value if node and node.glibc else None,
        "arch": node.machine.value if node and node.machine else None,
        "free_bytes": folder.free_bytes if folder else None,
        "filesystem": folder.filesystem if folder else None,
        "network_filesystem": folder.network if folder else None,
        "shares_home_with": list(it.sharing),
        "environment": current.name if current else None,
        "digest": current.lock_digest if current else None,
        "proof": current.level if current else None,
        "device": current.device if current else None,
        "findings": [finding.id for finding in node.findings] if node else [],
    }


def plain_agreement(agreed: Agreement) -> dict[str, Any]:
    """Return the row for all nodes, and who is left out, as scripts read it."""
    return {
        "row": _plain_row(agreed.fit, agreed.nodes) if agreed.fit else None,
        "leave_out": [{"node": name, "reasons": list(reasons)} for name, reasons in agreed.left_out],
    }


def _plain_row(fit: Fit, nodes: Sequence[str]) -> dict[str, Any]:
    """Return the row, and the nodes it fits."""
    return {
        "id": fit.entry.id,
        "title": fit.entry.row.title,
        "python": fit.pins.python if fit.pins else None,
        "support": fit.verdict,
        "nodes": list(nodes),
    }


def text_of_check(seen: Sequence[Seen], differ: Sequence[Difference], agreed: Agreement) -> str:
    """Write the table, then what differs, then the row."""
    lines = [*table([_HEAD, *(_row(it) for it in seen)]), ""]
    for it in differ:
        lines.append(f"{it.what} differs:")
        lines += [f"  {value}: {some(names)}" for value, names in it.values]
    lines += [
        f"{it.name} shares its home with {some(it.sharing)}: give each node its own, --home DIR"
        for it in seen
        if it.sharing
    ]
    lines += [f"{it.name}: {finding.what}: {finding.action}" for it in seen if it.node for finding in it.node.findings]
    return "\n".join([*lines, *_agreement_lines(agreed)])


def _agreement_lines(agreed: Agreement) -> list[str]:
    """Say which row fits, and which nodes it would leave out."""
    if agreed.fit is None:
        lines = ["no row fits any of the nodes"]
    elif agreed.left_out:
        lines = [f"no row fits all; {agreed.fit.entry.id} fits {len(agreed.nodes)} nodes: {some(agreed.nodes)}"]
    else:
        lines = [f"fits all {len(agreed.nodes)} nodes: {agreed.fit.entry.id} ({agreed.fit.entry.row.title})"]
    return [*lines, *(f"  without {name}: {'; '.join(reasons)}" for name, reasons in agreed.left_out)]


def _row(it: Seen) -> tuple[str, ...]:
    if it.error or it.node is None:
        return it.name, f"no answer: {it.error}"
    node, folder, current = it.node, it.folder, it.current
    return (
        it.name,
        node.driver.version if node.driver else NONE,
        gpus_of(node),
        node.glibc.value if node.glibc else "?",
        human_bytes(folder.free_bytes) if folder and folder.free_bytes is not None else "?",
        current.name if current else NONE,
        f"{current.level} on {current.device}" if current else "",
    )


def table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Line columns up; a row with two cells has its second across all."""
    whole = [row for row in rows if len(row) == len(rows[0])]
    widths = [max(len(row[at]) for row in whole) for at in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip() for row in rows]


def some(names: Sequence[str]) -> str:
    """Name a few nodes, and count the rest."""
    rest = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")


def short_digest(digest: str) -> str:
    """Return what people are shown of a digest."""
    return digest.removeprefix("sha256:")[:_DIGEST]
