"""Run on each node by its engine, with whatever Python is there: unpack verl-env, run it, say what it said.

    python agent_child.py < REQUEST > ANSWER    both are JSON; what verl-env writes to stderr goes to stderr as it comes

It stands alone, for Pythons from 3.8: nothing of verl_env is imported, since this may be another environment. It writes
below the home that the request names, and nowhere else. A request:

    home    the folder that is VERL_ENV_HOME on this node
    node    this node's name in its cluster
    tool    the sha256 of the archive of verl-env (`tool.py`), sent beforehand to `tool_path(home, tool)`
    oldest  the minor of the oldest Python that it runs on, such as [3, 11]
    mark    a word of this run: left in the home under the node's name, so that a home that several nodes share shows
    environ more variables for the calls
    files   texts by name, laid into the folder that the calls run in
    calls   each {"words": [...]} runs verl-env, {"bundle": PATH, "words": [...]} runs the `start.sh` of a bundle, after
            each other until one fails; "seconds" is its time limit; a bundle is removed after the exit codes of
            "remove_after", unless a file PATH.kept lies beside it
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_PYTHONS = ("python3.12", "python3.13", "python3.11", "python3.10", "python3.14", "python3", "/usr/bin/python3")
_START = "import sys; sys.path.insert(0, sys.argv.pop(1)); from verl_env.cli import main; sys.exit(main())"
_LEAKY = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "CONDA_PREFIX")
NODE_WORD = "{node}"  # among the words of a call: this node's name
_PR_SET_PDEATHSIG = 1  # prctl(2)
_LAST = 200  # lines of stderr that an answer carries


class AgentError(Exception):
    """What keeps verl-env from running on this node; told as it is."""


def tool_path(home: str, digest: str) -> str:
    """Return where the archive of verl-env is sent to."""
    return f"{home}/self/cluster/{digest[:20]}.zip"


def serve(request: dict[str, Any], tell: Callable[[str], None]) -> dict[str, Any]:
    """Do what was asked, and return the answer: `calls` with code, out and err each, or `error`."""
    home = Path(request["home"])
    said: dict[str, Any] = {"host": socket.gethostname(), "python": platform.python_version(), "calls": []}
    try:
        home.mkdir(parents=True, exist_ok=True)
        said["marks"] = _mark(home, request)
        for call in request.get("calls", ()):
            done = _call(request, call, tell)
            said["calls"].append(done)
            if done["code"] != 0:
                break
    except (AgentError, OSError, zipfile.BadZipFile, tarfile.TarError) as err:
        said["error"] = str(err)
    return said


def _mark(home: Path, request: dict[str, Any]) -> list[str]:
    """Leave this node's mark, and return the names of all nodes whose marks are in this home; older marks go."""
    mark = request.get("mark")
    if not mark:
        return []
    folder = home / "self" / "cluster" / f"seen-{mark}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / request["node"]).touch()
    for other in folder.parent.glob("seen-*"):
        if other != folder:
            shutil.rmtree(other, ignore_errors=True)
    return sorted(os.listdir(folder))


def _call(request: dict[str, Any], call: dict[str, Any], tell: Callable[[str], None]) -> dict[str, Any]:
    """Run one call in a folder of its own that holds the request's files."""
    home, node = Path(request["home"]), str(request.get("node", ""))
    given = [node if it == NODE_WORD else it for it in call["words"]]
    with tempfile.TemporaryDirectory(prefix=".cluster-", dir=home) as name:
        for file, text in (request.get("files") or {}).items():
            (Path(name) / file).write_text(text, encoding="utf-8")
        if "bundle" in call:
            bundle = call["bundle"]
            words = ["sh", _start_script(bundle, name), bundle, *given]
            done = _run(words, name, _environ(request), call.get("seconds"), tell)
            if done["code"] in call.get("remove_after", ()) and not os.path.exists(f"{bundle}.kept"):
                os.unlink(bundle)
            return done
        python, tool = _python(tuple(request["oldest"])), _tool(home, request["tool"])
        words = [python, "-I", "-B", "-c", _START, str(tool), *given]
        return _run(words, name, _environ(request), call.get("seconds"), tell)


def _start_script(bundle: str, folder: str) -> str:
    """Take `start.sh`, the second member, out of a bundle without reading the rest."""
    with tarfile.open(bundle, "r|") as archive:
        for member in archive:
            source = archive.extractfile(member) if member.name == "start.sh" else None
            if source is not None:
                path = Path(folder) / "start.sh"
                path.write_bytes(source.read())
                return str(path)
    raise AgentError(f"`{bundle}` is no bundle of verl-env")


def _environ(request: dict[str, Any]) -> dict[str, str]:
    """Return this node's variables, less what leaks into another Python, with the home that all nodes share by name."""
    kept = {name: value for name, value in os.environ.items() if name not in _LEAKY}
    return {**kept, "VERL_ENV_HOME": request["home"], **(request.get("environ") or {})}


def _python(oldest: tuple[int, ...]) -> str:
    """Return a Python that verl-env runs on: this one, or one that is found."""
    if sys.version_info >= oldest:
        return sys.executable
    for name in _PYTHONS:
        path = shutil.which(name)
        words = [path or name, "-I", "-c", f"import sys; sys.exit(sys.version_info < {oldest!r})"]
        if path and subprocess.run(words, stdin=subprocess.DEVNULL, check=False).returncode == 0:
            return path
    least = ".".join(str(it) for it in oldest)
    raise AgentError(f"no Python {least} or newer is on this node (this one is {platform.python_version()})")


def _tool(home: Path, digest: str) -> Path:
    """Return the folder of verl-env, unpacked once from the archive that was sent."""
    archive = Path(tool_path(str(home), digest))
    folder = archive.with_suffix("")
    if folder.is_dir():
        os.utime(folder)  # in use: `prune` removes what nobody has used for a day
        return folder
    if hashlib.sha256(archive.read_bytes()).hexdigest() != digest:
        raise AgentError(f"`{archive}` arrived damaged")
    fresh = Path(tempfile.mkdtemp(prefix=".unpack-", dir=archive.parent))
    try:
        with zipfile.ZipFile(archive) as packed:
            packed.extractall(fresh)  # noqa: S202 - its bytes were compared with what the sender packed
        fresh.chmod(0o755)
        if not folder.is_dir():
            os.rename(fresh, folder)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return folder


def _run(
    words: list[str], folder: str, environ: dict[str, str], seconds: float | None, tell: Callable[[str], None]
) -> dict[str, Any]:
    """Run one program to its end; its stderr is told line by line, its stdout kept whole."""
    started, errors = time.monotonic(), []
    child = subprocess.Popen(
        words,
        cwd=folder,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=_die_with(os.getpid()),  # noqa: PLW1509 - two system calls, and no lock of Python's
        text=True,
        errors="replace",
    )
    limit = threading.Timer(seconds, _end, [child]) if seconds else None
    out: list[str] = []
    reader = threading.Thread(target=lambda: out.append(child.stdout.read()))  # type: ignore[union-attr]
    reader.start()
    if limit:
        limit.start()
    for line in child.stderr:  # type: ignore[union-attr]
        errors.append(line.rstrip("\n"))
        tell(errors[-1])
    reader.join()
    code = child.wait()
    if limit:
        limit.cancel()
    late = seconds is not None and time.monotonic() - started >= seconds
    return {"code": code, "out": "".join(out), "err": errors[-_LAST:], "timed_out": late and code != 0}


def _end(child: subprocess.Popen[str]) -> None:
    """End a program and all that it started: politely first, as verl-env tidies up."""
    os.killpg(child.pid, signal.SIGTERM)
    try:
        child.wait(10)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)


def _die_with(parent: int) -> Callable[[], None]:
    """Return what makes a child end with this process, also when an engine kills it."""
    library = ctypes.CDLL(None, use_errno=True)

    def prepare() -> None:
        library.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(1)

    return prepare


def main() -> None:
    """Serve one request."""
    request = json.load(sys.stdin)
    json.dump(serve(request, lambda line: print(line, file=sys.stderr, flush=True)), sys.stdout)


if __name__ == "__main__":
    main()
