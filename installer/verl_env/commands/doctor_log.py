"""`verl-env doctor --log`: what a failed run's output says was the cause."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from verl_env.commands.doctor import FINDINGS
from verl_env.doctor.redact import without_secrets
from verl_env.errors import UsageError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from verl_env.doctor.explain import Explanation
    from verl_env.doctor.log_scan import Scan
    from verl_env.output import Result


_WIDTH = 300
_PATIENCE = 1.2  # seconds that one driver library may take to answer here


def run_log(args: argparse.Namespace) -> Result:
    """Read the log to its end, and explain it; exit code 8 when it is explained with more than low confidence."""
    from verl_env.doctor.confirm import confirm
    from verl_env.doctor.explain import explain
    from verl_env.doctor.failures import load_catalogue
    from verl_env.doctor.log_scan import scan_log
    from verl_env.output import Result

    catalogue = load_catalogue(args.matrix)
    scan = _scan(args.log, lambda stream: scan_log(stream, catalogue.signatures))
    explanations = explain(scan, catalogue)
    if explanations:
        node = _node(args)
        explanations = confirm(explanations, catalogue, node, node.findings)
    known = any(one.confidence != "low" for one in explanations)
    data = {
        "log": {"lines": scan.lines, "bytes": scan.bytes, "failed": scan.failed},
        "known": known,
        "explanations": [_plain(one) for one in explanations],
    }
    return Result(data=data, text=_text(explanations, scan), exit_code=FINDINGS if known else 0)


def explain_text(text: str, matrix: str | None = None) -> Explanation | None:
    """Return the likeliest explanation of a failed step's output, for its error; None when it is not known."""
    import io

    from verl_env.doctor.explain import explain
    from verl_env.doctor.failures import load_catalogue
    from verl_env.doctor.log_scan import scan_log

    catalogue = load_catalogue(matrix)
    scan = scan_log(io.BytesIO(text.encode(errors="replace")), catalogue.signatures)
    return next((one for one in explain(scan, catalogue) if one.confidence != "low"), None)


def _scan(name: str, read: Callable[[BinaryIO], Scan]) -> Scan:
    """Open the log, or take stdin for `-`."""
    if name == "-":
        return read(sys.stdin.buffer)
    try:
        with Path(name).expanduser().open("rb") as stream:
            return read(_as_binary(stream))
    except OSError as err:
        raise UsageError(
            f"cannot read the log `{name}`: {err.strerror or err}", hint="name a file, or - for stdin"
        ) from err


def _as_binary(stream: BinaryIO) -> BinaryIO:
    """Unpack a log that was compressed with gzip."""
    import gzip

    magic = stream.read(2)
    stream.seek(0)
    return gzip.open(stream, "rb") if magic == b"\x1f\x8b" else stream  # type: ignore[return-value]


def _node(args: argparse.Namespace) -> Any:
    """Return the node described, or this one: only what is quick, since the log may come from elsewhere."""
    from verl_env.node.arguments import is_described, node_from_arguments
    from verl_env.node.host import Host
    from verl_env.node.probe import probe_node

    if is_described(args):
        from verl_env.matrix.load import load_matrix

        return node_from_arguments(args, names=load_matrix(args.matrix).gpu_names() if args.gpu else {})
    return probe_node(host=Host(patience=_PATIENCE), interpreters=False, limit=_PATIENCE)


def _plain(one: Explanation) -> dict[str, Any]:
    """Return an explanation as `data.explanations[]` has it."""
    return {
        "class": one.name,
        "title": one.title,
        "cause": one.cause,
        "confidence": one.confidence,
        "evidence": [{"line": it.line, "worker": it.worker, "text": _shown(it.text)} for it in one.evidence],
        "remedy": one.remedy,
        "signature": one.signature,
        "times": one.times,
        "node": one.node,
        "page": f"docs/failures.md#{one.name}",
    }


def _shown(text: str) -> str:
    """Return a line for people: no secrets, no megabytes."""
    text = without_secrets(text)
    return text if len(text) <= _WIDTH else f"{text[:_WIDTH]}…"


def _text(explanations: tuple[Explanation, ...], scan: Scan) -> str:
    """Render what explains the log, the likeliest in full and others in a line each."""
    size = f"{scan.lines} lines"
    sure = [one for one in explanations if one.confidence != "low"]
    guesses = [one for one in explanations if one.confidence == "low"]
    if not sure:
        lines = [f"not known: nothing in these {size} is a failure that verl-env knows"]
        lines += [f"  a guess, no more: {one.title} ({one.name}), line {one.evidence[0].line}" for one in guesses[:2]]
        return "\n".join(lines)
    first, *others = sure
    return "\n".join([*_in_full(first), *_in_short(others)])


def _in_full(one: Explanation) -> list[str]:
    """Render the likeliest explanation."""
    lines = [f"{one.title} ({one.name}, {one.confidence} confidence)"]
    for it in one.evidence:
        worker = f" [{it.worker}]" if it.worker else ""
        lines.append(f"  line {it.line}{worker}: {_shown(it.text)}")
    if one.times > len(one.evidence):
        lines.append(f"  … {one.times} lines in all")
    lines += [f"  cause  {one.cause}", f"  do     {one.remedy}"]
    lines += [f"  node   {one.node}"] if one.node else []
    return lines


def _in_short(others: list[Explanation]) -> list[str]:
    """Render what else was seen: consequences, most likely."""
    if not others:
        return []
    shown = [
        f"  {one.title} ({one.name}, {one.confidence}), line {one.evidence[0].line}: {one.remedy}" for one in others
    ]
    return ["", "seen too:", *shown]
