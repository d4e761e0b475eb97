"""What Slurm's programs write, read: records of scontrol, and the lines of an srun with labels. Pure."""

from __future__ import annotations

import json
import re
from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import Any

# A message of a node's child is one or more such lines: srun cuts what is longer than 1024 bytes.
MARK = "verl-env:"
MORE, LAST = "+", "."

_LABELLED = re.compile(r"\s*(\d+): ?(.*)")
_LAUNCH = re.compile(r"Task launch for \S+ failed on node (\S+): (.*)")
_LOST = re.compile(r"Node failure on (\S+)")
_EXITED = re.compile(r"(\S+): tasks? ([\d,-]+): (.*)")
_SENT = re.compile(r"sbcast: error: \w+\((\S+?)\): (.*)")
_NOISE = ("cluster configuration lacks support for cpu binding",)  # it was asked for none
_KEPT = 20  # lines of srun itself, and of each task, that may explain an end


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """Something of some nodes (Slurm's list of them): a `message` of a child, or `why` one will say nothing more.

    A task that `exited` may still have words on their way; one that was never `launched` takes the step with it.
    """

    nodes: str
    message: dict[str, Any] = field(default_factory=dict)
    why: str = ""
    exited: bool = False
    launched: bool = True


class Ear:
    """Puts the lines of one srun together."""

    def __init__(self) -> None:
        """Begin before the first line."""
        self.said: deque[str] = deque(maxlen=_KEPT)
        self._names: dict[str, str] = {}
        self._pieces: dict[str, list[str]] = defaultdict(list)
        self._words: dict[str, deque[str]] = defaultdict(lambda: deque(maxlen=_KEPT))

    def hear(self, line: str) -> Heard | None:
        """Take a line; return what it completes."""
        line = line.rstrip("\n")
        if match := _LABELLED.fullmatch(line):
            return self._task(str(int(match[1])), match[2])
        text = line.removeprefix("srun: ").removeprefix("error: ")
        if match := _LAUNCH.fullmatch(text):
            return Heard(nodes=match[1], why=f"Slurm cannot start a task there: {match[2]}", launched=False)
        if match := _LOST.fullmatch(text):
            return Heard(nodes=match[1], why="Slurm says that the node failed")
        if match := _EXITED.fullmatch(text):
            words = " ".join(text for label in labels(match[2]) for text in self._words[str(label)])
            return Heard(nodes=match[1], why=f"{words or 'its task ended'} ({match[3]})", exited=True)
        if text not in _NOISE:
            self.said.append(text)
        return None

    def _task(self, label: str, text: str) -> Heard | None:
        if not text.startswith(MARK):
            self._words[label].append(text)
            return None
        kind, piece = text[len(MARK) :][:1], text[len(MARK) + 1 :]
        self._pieces[label].append(piece)
        if kind == MORE:
            return None
        try:
            message = json.loads("".join(self._pieces.pop(label)))
        except ValueError:  # cut off by what ended the task
            return None
        name = self._names.setdefault(label, str(message.get("hello", "")))
        return Heard(nodes=name, message=message)


def labels(text: str) -> list[int]:
    """Return the numbers of Slurm's list of tasks, such as `0,2-4`."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found.extend(range(int(first), int(last or first) + 1))
    return found


def value_of(record: str, name: str) -> str:
    """Return a value of a record that scontrol wrote in one line; empty when it has none."""
    match = re.search(rf"(?:^|\s){name}=(\S+)", record)
    return match[1] if match else ""


def unsent(said: str) -> dict[str, str]:
    """Return, by node, why sbcast could not write there."""
    return {match[1]: match[2] for line in said.splitlines() if (match := _SENT.fullmatch(line.strip()))}
