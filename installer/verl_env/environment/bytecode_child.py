"""Run by an environment's own Python: gives its packages their bytecode, and keeps what it compiled. Standard library.

    python -I -S bytecode_child.py < order.json

The order: `site` (the environment's site-packages), `store` (a folder for this Python), `keys` (`name version` ->
sha256 of its wheel), `cores`. A package without a key is compiled and not kept. Prints one JSON object.
"""

from __future__ import annotations

import csv
import errno
import hashlib
import importlib.util
import json
import os
import py_compile
import re
import shutil
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed

LISTING = "listing"
_CHUNK = 64  # sources in one job: one large package must not be one process's alone
_HEADER = 16  # bytes of PEP 552: magic number, flags, hash of the source
_CHECKED = py_compile.PycInvalidationMode.CHECKED_HASH
_NO_LINK = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP)


class StaleError(Exception):
    """What was kept is not what its listing says."""


def main() -> None:
    """Read the order, do it with one process a core, say what was done."""
    order = json.load(sys.stdin)
    site, store = order["site"], order["store"]
    packages = read_packages(site, order["keys"])
    known = {key for key, _ in packages if key and os.path.exists(f"{store}/{key}/{LISTING}")}
    count: Counter[str] = Counter()
    with ProcessPoolExecutor(max_workers=order["cores"]) as pool:
        jobs = [pool.submit(link, site, store, key, files) for key, files in packages if key in known]
        jobs += [
            pool.submit(compile_all, site, files[start : start + _CHUNK])
            for key, files in packages
            if key not in known
            for start in range(0, len(files), _CHUNK)
        ]
        for done in as_completed(jobs):
            count.update(done.result())
        for kept in as_completed([pool.submit(keep, site, store, key, files) for key, files in packages if key]):
            kept.result()
    json.dump(count, sys.stdout)


def read_packages(site: str, keys: dict[str, str]) -> list[tuple[str | None, list[str]]]:
    """Return each package's key and sources, by its RECORD; what two packages claim belongs to neither."""
    found = []
    for info in sorted(os.listdir(site)):
        if info.endswith(".dist-info"):
            name, _, version = info[: -len(".dist-info")].partition("-")
            with open(f"{site}/{info}/RECORD", encoding="utf-8", newline="") as stream:
                files = [row[0] for row in csv.reader(stream) if row and row[0].endswith(".py")]
            inside = [it for it in files if not it.startswith(("/", "..")) and os.path.isfile(f"{site}/{it}")]
            found.append((keys.get(f"{re.sub(r'[-_.]+', '-', name).lower()} {version}"), inside))
    claims = Counter(file for _, files in found for file in files)
    packages = [(key, [it for it in files if claims[it] == 1]) for key, files in found]
    return [*packages, (None, sorted(it for it, count in claims.items() if count > 1))]


def compile_all(site: str, files: list[str]) -> dict[str, int]:
    """Compile sources `checked-hash` (PEP 552); what is no Python of this version is left, as importing it would be."""
    count: Counter[str] = Counter()
    for file in files:
        try:
            # Named by where it lies in site-packages: the same bytes in every environment (importing sets the path).
            py_compile.compile(f"{site}/{file}", dfile=file, doraise=True, quiet=2, invalidation_mode=_CHECKED)
            count["compiled"] += 1
        except (py_compile.PyCompileError, ValueError, RecursionError, MemoryError):
            count["left"] += 1
    return count


def link(site: str, store: str, key: str, files: list[str]) -> dict[str, int]:
    """Link what is kept of one wheel into place; compile afresh where it is not what was kept."""
    try:
        count = sum(_place(f"{store}/{key}", site, line) for line in _listing(f"{store}/{key}/{LISTING}"))
    except (StaleError, FileNotFoundError, ValueError):
        shutil.rmtree(f"{store}/{key}", ignore_errors=True)
        return compile_all(site, files)
    return {"linked": count}


def _listing(path: str) -> list[str]:
    with open(path, encoding="utf-8", errors="surrogateescape") as stream:
        return stream.read().splitlines()


def _place(kept: str, site: str, line: str) -> int:
    """Put one file where it belongs, unless it was changed since it was kept or the source is another."""
    digest, size, changed, path = line.split(" ", 3)
    about = os.lstat(f"{kept}/{path}")
    with open(f"{kept}/{path}", "rb") as stream:
        source_hash = stream.read(_HEADER)[8:]
    if (about.st_size, about.st_mtime_ns) != (int(size), int(changed)) and _digest(f"{kept}/{path}") != digest:
        raise StaleError(path)
    target = f"{site}/{path}"
    with open(importlib.util.source_from_cache(target), "rb") as stream:
        if importlib.util.source_hash(stream.read()) != source_hash:
            raise StaleError(path)
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if os.path.lexists(target):
        os.unlink(target)
    link_or_copy(f"{kept}/{path}", target)
    return 1


def _digest(path: str) -> str:
    with open(path, "rb") as stream:
        return hashlib.sha256(stream.read()).hexdigest()


def keep(site: str, store: str, key: str, files: list[str]) -> None:
    """Keep one wheel's bytecode, with what each file is; a folder without a listing is not looked at."""
    if os.path.exists(f"{store}/{key}"):
        return
    aside = f"{store}/.{key}.{os.getpid()}"
    os.makedirs(aside, exist_ok=True)
    lines = []
    for path in map(importlib.util.cache_from_source, files):
        if os.path.isfile(f"{site}/{path}"):
            os.makedirs(os.path.dirname(f"{aside}/{path}"), exist_ok=True)
            link_or_copy(f"{site}/{path}", f"{aside}/{path}")
            about = os.lstat(f"{aside}/{path}")
            lines.append(f"{_digest(f'{aside}/{path}')} {about.st_size} {about.st_mtime_ns} {path}\n")
    with open(f"{aside}/{LISTING}", "w", encoding="utf-8", errors="surrogateescape") as stream:
        stream.writelines(lines)
    try:
        os.rename(aside, f"{store}/{key}")
    except OSError:  # another installer was first
        shutil.rmtree(aside, ignore_errors=True)


def link_or_copy(source: str, target: str) -> None:
    """Make a hard link, or a copy where the file system has none."""
    try:
        os.link(source, target)
    except OSError as err:
        if err.errno not in _NO_LINK:
            raise
        shutil.copy2(source, target)


if __name__ == "__main__":
    main()
