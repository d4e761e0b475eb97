"""The receipt: written last. An environment without one does not exist."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import dataclass, replace
from pathlib import Path

from verl_env import paths
from verl_env.environment.base import Base
from verl_env.environment.exports import Export
from verl_env.errors import NoEnvironmentError
from verl_env.files import write_atomically
from verl_env.proof.levels import LEVELS
from verl_env.records import RecordError, from_plain, to_plain

NAME = "verl-env-receipt.json"
SCHEMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """One thing that was shown for the receipt: an import or a check; `seconds` is wall time.

    `said` is what a check found; `skipped`, that there was nothing to show, and `said` why.
    """

    level: str
    name: str
    seconds: float
    said: str = ""
    skipped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Proved:
    """What `smoke` showed later, and where: the `level` reached, on which `device` of which `host`, and when (UTC).

    Single checks (`smoke --only`) reach no level above `files`.
    """

    level: str
    device: str
    host: str
    when: str
    shown: tuple[Shown, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What is installed in a folder, from which lock, with which Python, and what was proved of it.

    `python` is the exact version; `level` the highest proof level reached when it was made, `device` where; `made` is
    in UTC, ISO 8601. `later` is what was shown since, one entry a device and host. `manifest` is the digest of the
    manifest beside it, of `files` files with `bytes` bytes in all. `base` is the Python that it rests on, when it was
    laid over one.
    """

    schema: int
    name: str
    lock_digest: str
    row: str
    title: str
    python: str
    interpreter: str
    packages: int
    made: str
    by: str
    level: str
    device: str
    imports: tuple[str, ...]
    shown: tuple[Shown, ...]
    exports: tuple[Export, ...]
    set: dict[str, str]
    notes: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    manifest: str = ""
    files: int = 0
    bytes: int = 0
    base: Base | None = None
    cuda: str | None = None
    attention: str | None = None
    later: tuple[Proved, ...] = ()

    @property
    def best(self) -> tuple[str, str]:
        """The highest level that was shown of it at any time, and the device that it was shown on."""
        made = (self.level, self.device)
        return max([made, *((it.level, it.device) for it in self.later)], key=lambda it: LEVELS.index(it[0]))

    @property
    def identity(self) -> tuple[str, str]:
        """What two environments of the same making share: the lock, and the base beneath it."""
        return self.lock_digest, self.base.digest if self.base else ""


def read_receipt(folder: Path) -> Receipt | None:
    """Return an environment's receipt, or None when there is none that can be read."""
    try:
        plain = json.loads((folder / NAME).read_text(encoding="utf-8"))
        return from_plain(Receipt, plain) if plain.get("schema") == SCHEMA else None
    except (OSError, ValueError, AttributeError, RecordError):
        return None


def write_receipt(folder: Path, receipt: Receipt) -> None:
    """Write it: from here on the environment is complete."""
    write_atomically(folder / NAME, json.dumps(to_plain(receipt), indent=2, ensure_ascii=False) + "\n")


def with_proof(receipt: Receipt, proved: Proved) -> Receipt:
    """Add what was shown to what was shown earlier in the same place: the files are the same."""
    place = (proved.host, proved.device)
    others = tuple(it for it in receipt.later if (it.host, it.device) != place)
    for before in receipt.later:
        if (before.host, before.device) == place:
            proved = _joined(before, proved)
    return replace(receipt, later=(*others, proved))


def _joined(before: Proved, proved: Proved) -> Proved:
    """Return both: the higher level, and of each check what it said last."""
    again = {(it.level, it.name) for it in proved.shown}
    kept = tuple(it for it in before.shown if (it.level, it.name) not in again)
    level = max(before.level, proved.level, key=LEVELS.index)
    return replace(proved, level=level, shown=(*kept, *proved.shown))


def now() -> str:
    """Return this moment in UTC, to the microsecond: `list` sorts by it, and small environments share a second."""
    return dt.datetime.now(dt.timezone.utc).isoformat(timespec="microseconds")


def find_environment(name: str | None) -> tuple[Path, Receipt]:
    """Return the current environment, or the one whose name starts with `name` (or whose folder it is)."""
    folder = _folder_of(name)
    receipt = read_receipt(folder)
    if receipt is None:
        raise NoEnvironmentError(
            f"`{folder}` is not a complete environment", hint="build it: verl-env install", details=()
        )
    return folder, receipt


def _folder_of(name: str | None) -> Path:
    """Resolve `current`, a path, a name or the unambiguous start of one."""
    if name is None:
        if not paths.current().exists():
            raise NoEnvironmentError("no environment is in use yet", hint="build one: verl-env install")
        return paths.current().resolve()
    if "/" in name:
        return Path(name).expanduser().resolve()
    there = paths.environments()
    found = sorted(it for it in there.glob("*") if it.name.startswith(name) and (it / NAME).is_file())
    exact = [it for it in found if it.name == name] or found
    if len(exact) == 1:
        return exact[0]
    all_names = [it.name for it in sorted(there.glob("*")) if (it / NAME).is_file()]
    what = f"`{name}` could be {', '.join(it.name for it in found)}" if found else f"no environment is called `{name}`"
    raise NoEnvironmentError(what, details=tuple(all_names), hint="name one of them in full")
