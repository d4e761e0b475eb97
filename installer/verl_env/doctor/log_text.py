"""What stands around a message in a log: colours, worker prefixes, time stamps, levels. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

ERROR, WARNING, INFO, PLAIN = "error", "warning", "info", ""

# ECMA-48: CSI sequences, OSC strings (hyperlinks), and single escapes.
_ESCAPES = re.compile(rb"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)?|[@-Z\\^_])")

# Who speaks, before what is said: Ray, vLLM, torchrun, srun -l, mpirun, container logs.
_PREFIX = re.compile(
    r"\s*(?:"
    r"\((?P<worker>[^()\n]{0,90}\bpid=\d+[^()\n]{0,60}|(?:raylet|gcs_server|autoscaler|dashboard\w*)\b[^()\n]{0,60})\)"
    r"|\[(?:rank|default)?\d+\]:"
    r"|\[\d+,\d+\]<std\w+>:"
    r"|\d{4}-\d\d-\d\dT[\d:.,+Z-]{8,40} std(?:out|err) [FP] "
    r"|\d{1,4}: (?=\S)"
    r")\s?"
)
_REPEATED = re.compile(r"\s*\[repeated \d+x across cluster\].*$")
_HEAD = 160
_LEVELS = re.compile(
    r"(?P<info>(?<![=\w])(?:DEBUG|INFO|NCCL INFO)\b|^\s*(?:info|debug|note)\s?:|^[ID]\d{4} |\[I )"
    r"|(?P<error>\b(?:ERROR|CRITICAL|FATAL|NCCL WARN)\b|^\s*(?:error|fatal)\b|^[EF]\d{4} |\[E )"
    r"|(?P<warning>\bWARN(?:ING)?\b|\b\w*Warning: |^\s*warning\b|^W\d{4} |\[W |^[\d-]+ [\d:.]+: W )"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One message: `text` without colours and prefixes, its `level`, and which `worker` of Ray or vLLM said it."""

    text: str
    level: str
    worker: str


def plain_bytes(block: bytes) -> bytes:
    """Return a block without escapes, each redrawn progress bar on a line of its own."""
    if b"\x1b" in block:
        block = _ESCAPES.sub(b"", block)
    return block.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in block else block


def read_line(raw: str) -> Line:
    """Take a line apart."""
    worker, at = "", 0
    for _ in range(4):  # srun's label, a container's stamp, Ray's worker, torchrun's rank
        found = _PREFIX.match(raw, at)
        if not found:
            break
        worker = found["worker"] or worker
        at = found.end()
    text = _REPEATED.sub("", raw[at:]).strip()
    return Line(text=text, level=level_of(text), worker=worker)


def level_of(text: str) -> str:
    """Return how a logger rated the line, read from its beginning; PLAIN when it does not say."""
    found = _LEVELS.search(text, 0, _HEAD)
    if found is None:
        return PLAIN
    if found.lastgroup == INFO and "NCCL WARN" in text[:_HEAD]:
        return ERROR
    return found.lastgroup or PLAIN
