"""Reading the RECORD of every wheel of a closure, without fetching the wheels. An edge, for maintainers."""

from __future__ import annotations

import zipfile
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from verl_env import fetch, progress
from verl_env.errors import VerlEnvError
from verl_env.matrix.clashes import parse_record

if TYPE_CHECKING:
    from collections.abc import Mapping

    from verl_env.indexes import Indexes
    from verl_env.matrix.pins import Pin

AT_ONCE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """What was read: `records` by `package version`, and why others could not be."""

    records: dict[str, dict[str, str]] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)


def read_records(pins: tuple[Pin, ...], urls: Mapping[str, str], indexes: Indexes) -> Records:
    """Read each wheel's RECORD where `urls` says it is; what cannot be read is named, with the reason."""
    found = Records()
    door = fetch.open_door(indexes)
    wheels = [pin for pin in pins if not pin.is_sdist]
    found.unread.update({f"{pin.name} {pin.version}": "an sdist: built on the node" for pin in pins if pin.is_sdist})
    with ThreadPoolExecutor(max_workers=AT_ONCE) as pool, progress.steps("contents", len(wheels), lines=False) as step:
        waiting = {pool.submit(read_record, door, urls[pin.file], pin.size): pin for pin in wheels}
        try:
            for done in as_completed(waiting):
                pin = waiting[done]
                name = f"{pin.name} {pin.version}"
                try:
                    found.records[name] = parse_record(done.result())
                except (VerlEnvError, zipfile.BadZipFile, OSError, UnicodeDecodeError) as err:
                    found.unread[name] = str(err)
                step(name)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return found


def read_record(door: fetch.Door, url: str, size: int) -> str:
    """Return the text of a wheel's RECORD."""
    return read_member(door, url, size, "RECORD")


def read_member(door: fetch.Door, url: str, size: int, name: str) -> str:
    """Return the text of one file of a wheel's .dist-info; raises BadZipFile when it has none."""
    with door.open(url, size) as stream, zipfile.ZipFile(stream) as wheel:
        for entry in wheel.namelist():
            folder, _, rest = entry.partition("/")
            if folder.endswith(".dist-info") and rest == name:
                return wheel.read(entry).decode("utf-8")
    raise zipfile.BadZipFile(f"the wheel has no {name}")
