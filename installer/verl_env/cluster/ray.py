"""Ray as the engine: a driver in a Python that has Ray, spoken to in lines of JSON."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from verl_env import paths, process
from verl_env.cluster import agent_child
from verl_env.cluster.engine import Answer, Member
from verl_env.environment.standing import current_folder
from verl_env.errors import EngineError
from verl_env.node.ray_head import DEFAULT_ADDRESS, place_of, remembered

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_DRIVER = Path(__file__).parent / "inside" / "ray_driver.py"
_JOIN_SECONDS = 120.0
_GRACE_SECONDS = 600.0  # beyond a request's own limit: the driver gives each node up by itself
_SHEBANG = re.compile(r"#!\s*(\S*python[\d.]*)\s*$")


class RayEngine:
    """A cluster of Ray's that runs; raises EngineError when it does not answer or refuses this Ray."""

    name: ClassVar[str] = "ray"

    def __init__(self, address: str | None, python: str | None) -> None:
        """Join the cluster at an address; without one, where RAY_ADDRESS or Ray itself last said."""
        self.address = _address(address)
        self.python = ray_python(python)
        words: list[str | Path] = [self.python, "-I", "-B", _DRIVER, self.address, agent_child.__file__]
        environ = process.clean_environ({"RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0"})
        try:
            self._dialogue = process.Dialogue(words, env=environ)
        except OSError as err:
            raise EngineError(
                f"`{self.python}` cannot be started: {err.strerror or err}",
                hint="name a Python that has the cluster's Ray: --ray-python PYTHON",
            ) from err
        try:
            self.version = str(self._hear("joined", seconds=_JOIN_SECONDS))
        except BaseException:
            self._dialogue.end()
            raise

    def members(self) -> tuple[Member, ...]:
        """Return the living nodes."""
        self._dialogue.tell(json.dumps({"do": "members"}))
        return tuple(Member(**it) for it in self._hear("members", seconds=_JOIN_SECONDS))

    def ask(
        self,
        members: Sequence[Member],
        request: Mapping[str, Any],
        *,
        seconds: float,
        told: Callable[[str, str], None] | None = None,
    ) -> dict[str, Answer]:
        """Run the agent in an actor on each node."""
        asked = {"do": "ask", "members": [it.name for it in members], "request": dict(request), "seconds": seconds}
        self._dialogue.tell(json.dumps(asked))
        answers = self._hear("answers", seconds=seconds + _GRACE_SECONDS, told=told)
        return {name: Answer(**it) for name, it in answers.items()}

    def send(
        self,
        members: Sequence[Member],
        path: Path,
        to: str,
        *,
        told: Callable[[str, int], None] | None = None,
    ) -> dict[str, str]:
        """Carry the file in chunks through Ray's object store: each is put there once, and nodes take it from nodes."""
        asked = {"do": "send", "members": [it.name for it in members], "path": str(path), "to": to}
        self._dialogue.tell(json.dumps(asked))
        sent: dict[str, str] = self._hear("sent", seconds=None, moved=told)
        return sent

    def close(self) -> None:
        """Leave: the driver ends, and Ray ends its actors."""
        self._dialogue.end()

    def _hear(
        self,
        key: str,
        *,
        seconds: float | None,
        told: Callable[[str, str], None] | None = None,
        moved: Callable[[str, int], None] | None = None,
    ) -> Any:
        """Return the answer under `key`, passing on what is told before it; raises EngineError when none comes."""
        while (line := self._dialogue.hear(seconds)) is not None:
            try:
                said = json.loads(line)
            except ValueError:
                continue  # some library's word on stdout
            if key in said:
                return said[key]
            if "error" in said:
                raise EngineError(
                    f"the Ray cluster at {self.address} cannot be joined: {said['error']}",
                    hint="use the Ray and Python that the cluster runs: --ray-python PYTHON",
                )
            if told and "told" in said:
                told(*said["told"])
            if moved and "moved" in said:
                moved(*said["moved"])
        raise EngineError(
            f"the Ray cluster at {self.address} gave no answer",
            details=self._dialogue.last_words(),
            hint="see `verl-env doctor --ray`, and the head's logs in /tmp/ray/session_latest/logs",
        )


def _address(given: str | None) -> str:
    """Return host and port of the head."""
    known = remembered(os.environ)
    said = given or os.environ.get("RAY_ADDRESS") or (known[1] if known else DEFAULT_ADDRESS)
    place = place_of(said) or (place_of(known[1]) if known else place_of(DEFAULT_ADDRESS))
    if place is None:
        raise EngineError(f"`{said}` is no address of a Ray head", hint="write it as HOST:6379")
    return f"{place[0]}:{place[1]}"


def ray_python(given: str | None) -> str:
    """Return a Python that has Ray: the one that is named, the current environment's, or that of `ray` on PATH."""
    if given:
        path = Path(given).expanduser()
        return str(path / "bin" / "python" if path.is_dir() else path)
    current = current_folder()
    if current and any(current.glob("lib/python3*/site-packages/ray")):
        return str(current / "bin" / "python")
    script = shutil.which("ray")
    if script:
        with open(script, encoding="utf-8", errors="replace") as text:
            if match := _SHEBANG.match(text.readline().rstrip("\n")):
                return match[1]
    raise EngineError(
        "no Python with Ray is known here",
        details=(f"{paths.current()} has none, and `ray` is not on PATH",),
        hint="name the one that the cluster runs: --ray-python PYTHON",
    )
