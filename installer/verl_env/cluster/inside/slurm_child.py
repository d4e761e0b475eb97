"""Run on each node by srun, with whatever Python is there (from 3.8): do what lines of JSON on stdin ask.

`slurm_step.py` starts it, and calls `main` with the source of `agent_child.py`. Every node gets the same lines. When
stdin ends, or has told us to leave, what runs here is ended too.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import json
import os
import shutil
import signal
import sys
import threading
import types
from typing import Any

_MARK, _PIECE = "verl-env:", 800  # srun cuts what is longer than 1024 bytes
_ALIVE_SECONDS = 10.0
_END_SECONDS = 10.0  # for verl-env to tidy up
_speaking = threading.Lock()


def say(**message: Any) -> None:
    """Write a message in lines that srun leaves whole."""
    text = json.dumps(message)
    pieces = [text[at : at + _PIECE] for at in range(0, len(text), _PIECE)]
    with _speaking:
        for number, piece in enumerate(pieces, 1):
            sys.stdout.write("{}{}{}\n".format(_MARK, "." if number == len(pieces) else "+", piece))
        sys.stdout.flush()


def have(to: str, size: int, sha256: str, chunk: int) -> int:
    """Return how much of a file is here: all of it under its name, or whole pieces on its way there."""
    os.makedirs(os.path.dirname(to), exist_ok=True)
    if os.path.isfile(to) and os.path.getsize(to) == size and _sha256(to) == sha256:
        return size
    part = _part(to, sha256)
    there = os.path.getsize(part) if os.path.exists(part) else 0
    return max(0, min(there, size - 1)) // chunk * chunk


def take(to: str, size: int, sha256: str, offset: int, piece: str) -> int:
    """Put the piece that sbcast brought in its place; at the end of the file, look at its hash and give it its name."""
    part = _part(to, sha256)
    count = os.path.getsize(piece)
    if os.path.isfile(to) and os.path.getsize(to) == size and _sha256(to) == sha256:
        os.unlink(piece)
        return size
    if offset == 0:
        os.replace(piece, part)
    else:
        with open(part, "r+b") as sink, open(piece, "rb") as source:
            sink.truncate(offset)
            sink.seek(offset)
            shutil.copyfileobj(source, sink, 1 << 20)
        os.unlink(piece)
    if offset + count < size:
        return offset + count
    if _sha256(part) != sha256:
        os.unlink(part)
        raise OSError(f"`{to}` arrived damaged")
    with open(part, "r+b") as whole:
        os.fsync(whole.fileno())
    os.replace(part, to)
    return size


def drop(piece: str) -> int:
    """Remove what is left of a piece that did not reach all nodes; return how many bytes were free."""
    free = shutil.disk_usage(os.path.dirname(piece)).free
    if os.path.exists(piece):
        os.truncate(piece, 0)  # slurmd keeps it open for minutes
        os.unlink(piece)
    return free


def _part(to: str, sha256: str) -> str:
    return f"{to}.{sha256[:12]}.part"


def _sha256(path: str) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _do(agent: Any, asked: dict[str, Any]) -> None:
    """Do one thing, and say how it went."""
    number, what = asked.pop("number"), asked.pop("do")
    try:
        if what == "serve":
            done = agent.serve(
                {**asked["request"], "node": os.environ["SLURMD_NODENAME"]},
                lambda line: say(number=number, told=line),
            )
        else:
            done = {"have": have, "take": take, "drop": drop}[what](**asked)
    except Exception as err:
        say(number=number, failed=f"{type(err).__name__}: {err}" if what == "serve" else str(err))
    else:
        say(number=number, done=done)


def _live() -> None:
    """Show now and then that this node is there."""
    pause = threading.Event()
    while not pause.wait(_ALIVE_SECONDS):
        say(alive=True)


def _end_work(work: threading.Thread) -> None:
    """Have what the agent started end in order."""
    for path in glob.glob("/proc/self/task/*/children"):
        with open(path, encoding="ascii") as children:
            for pid in children.read().split():
                with contextlib.suppress(OSError):
                    os.killpg(int(pid), signal.SIGTERM)
    work.join(_END_SECONDS)


def main(source: str) -> None:
    """Serve until stdin ends; one thing after the other."""
    agent: Any = types.ModuleType("verl_env_agent")
    exec(compile(source, "agent.py", "exec"), agent.__dict__)
    threading.Thread(target=_live, daemon=True).start()
    work = threading.Thread(target=int)
    work.start()
    for line in sys.stdin:
        asked = json.loads(line)
        if asked["do"] == "leave":
            break
        say(number=asked["number"], got=True)
        work.join()
        work = threading.Thread(target=_do, args=(agent, asked), daemon=True)
        work.start()
    _end_work(work)
    say(left=True)
    os._exit(0)
