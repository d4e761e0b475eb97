"""Reading the matrix from folders: the shipped one, with a site's laid over it. The edge of this room."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from verl_env import toml
from verl_env.errors import MatrixError, UsageError
from verl_env.matrix.facts import parse_facts
from verl_env.matrix.matrix import Entry, Matrix
from verl_env.matrix.pins import Pins, PinsHeader, digest_of
from verl_env.matrix.rows import Row
from verl_env.records import RecordError, from_plain

if TYPE_CHECKING:
    from collections.abc import Iterator

FACT_FILES = ("cuda.toml", "torch.toml", "gpus.toml", "mirrors.toml")
_ROW_ID = "abcdefghijklmnopqrstuvwxyz0123456789-"


def shipped() -> Path:
    """Return the folder of the shipped matrix: in the wheel, or at the top of a checkout."""
    package = Path(__file__).resolve().parents[1]
    inside = package / "matrices"
    return inside if inside.is_dir() else package.parents[1] / "matrices"


def load_matrix(site: str | Path | None = None) -> Matrix:
    """Read every fact, row and pins header; raise MatrixError with every fault of every file at once."""
    matrix, faults = read_matrix(site)
    if faults:
        raise MatrixError(f"the matrix has {len(faults)} faults", details=faults, hint="mend each file named")
    return matrix


def read_matrix(site: str | Path | None = None) -> tuple[Matrix, tuple[str, ...]]:
    """Read what can be read, and return it with the faults of what cannot."""
    folders = [shipped()]
    if site is not None:
        folders.append(Path(site).expanduser())
        if not folders[-1].is_dir():
            raise UsageError(f"no matrix folder at `{site}`", hint="name a folder that holds rows/*.toml")
    faults: list[str] = []
    facts = parse_facts(*(_fact_file(folders, name, faults) for name in FACT_FILES))
    entries: dict[str, Entry] = {}
    for folder in folders:
        headers = _headers(folder, faults)
        for path in sorted((folder / "rows").glob("*.toml")):
            entry = _entry(path, headers, faults, site=folder is not folders[0])
            if entry:
                entries[entry.id] = entry
    return Matrix(facts=facts, entries=entries), tuple(faults)


def load_pins(entry: Entry, header: PinsHeader) -> Pins:
    """Read one variant's pins whole, and hold its digest against what they are."""
    path = pins_path(entry, header)
    faults: list[str] = []
    plain = _read_toml(path, faults)
    try:
        pins = from_plain(Pins, _split(plain)) if not faults else None
    except RecordError as err:
        faults += [f"{path.name}: {fault}" for fault in err.faults]
        pins = None
    if pins is None:
        raise MatrixError(f"the pins `{path.name}` cannot be read", details=tuple(faults))
    found = digest_of(pins.pins, pins.build)
    if found != header.digest:
        raise MatrixError(
            f"the pins `{path.name}` were changed after they were made",
            details=(f"its header says {header.digest}", f"its packages give {found}"),
            hint=f"make them again: verl-env matrix resolve {entry.id}",
        )
    return pins


def pins_path(entry: Entry, header: PinsHeader) -> Path:
    """Return where one variant's pins lie: `pins/` beside the row's `rows/`."""
    return entry.path.parent.parent / "pins" / header.file_name


def _fact_file(folders: list[Path], name: str, faults: list[str]) -> dict[str, Any]:
    """Merge a fact file of every folder: a site adds tables, and its entries come first in arrays."""
    merged: dict[str, Any] = {}
    for path in (folder / name for folder in folders):
        if not path.exists():
            continue
        for key, value in _read_toml(path, faults).items():
            old = merged.get(key)
            if isinstance(old, dict) and isinstance(value, dict):
                merged[key] = {**old, **value}
            elif isinstance(old, list) and isinstance(value, list):
                merged[key] = [*value, *old]
            else:
                merged[key] = value
    return merged


def _headers(folder: Path, faults: list[str]) -> dict[str, list[PinsHeader]]:
    """Read the header of every pins file of a folder, by row."""
    found: dict[str, list[PinsHeader]] = {}
    for path in sorted((folder / "pins").glob("*.toml")):
        for header in _header(path, faults):
            found.setdefault(header.row, []).append(header)
            if path.name != header.file_name:
                faults.append(f"pins/{path.name}: holds the pins of `{header.file_name}`")
    return found


def _header(path: Path, faults: list[str]) -> Iterator[PinsHeader]:
    """Parse the lines before the first array; the rest is a hundred times as long and not needed to choose."""
    head: list[str] = []
    with path.open(encoding="utf-8") as stream:
        for line in stream:
            if line.rstrip().endswith(" = ["):
                break
            head.append(line)
    try:
        yield from_plain(PinsHeader, toml.loads("".join(head)))
    except toml.TOMLDecodeError as err:
        faults.append(f"pins/{path.name}: {err}")
    except RecordError as err:
        faults.extend(f"pins/{path.name}: {fault}" for fault in err.faults)


def _entry(path: Path, headers: dict[str, list[PinsHeader]], faults: list[str], *, site: bool) -> Entry | None:
    """Read one row and order its pins as the row orders its Pythons."""
    row_id = path.stem
    if set(row_id) - set(_ROW_ID):
        faults.append(f"rows/{path.name}: a row's id has only a-z, 0-9 and `-` (it names pylock.<id>.toml)")
        return None
    plain = _read_toml(path, faults)
    try:
        row = from_plain(Row, plain) if plain else None
    except RecordError as err:
        faults.extend(f"rows/{path.name}: {fault}" for fault in err.faults)
        return None
    if row is None:
        return None
    order = {python: number for number, python in enumerate(row.python)}
    mine = [it for it in headers.get(row_id, []) if it.python in order and it.arch in row.arch]
    mine.sort(key=lambda it: (order[it.python], it.arch))
    return Entry(id=row_id, row=row, path=path, pins=tuple(mine), site=site)


def _read_toml(path: Path, faults: list[str]) -> dict[str, Any]:
    """Parse one file; what is wrong with it goes to `faults`."""
    try:
        return toml.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, toml.TOMLDecodeError) as err:
        faults.append(f"{path.name}: {err}")
        return {}


def _split(plain: dict[str, Any]) -> dict[str, Any]:
    """Move the header's keys of a pins file into a table of their own, as the record has them."""
    groups: dict[str, Any] = {key: plain.pop(key) for key in ("pins", "build") if key in plain}
    return {**groups, "header": plain}


def stray_files(matrix: Matrix, site: str | Path | None = None) -> list[str]:
    """Return pins that no row claims, and rows of a site under the id of a shipped one."""
    used = {pins_path(entry, header) for entry in matrix.entries.values() for header in entry.pins}
    twice = [it for it in matrix.entries.values() if it.site and (shipped() / "rows" / it.path.name).exists()]
    faults = [f"rows/{it.path.name}: `{it.id}` is a shipped row too; give the site's an id of its own" for it in twice]
    hidden = tuple(f"{it.id}-cp" for it in twice)
    folders = [shipped(), *([Path(site).expanduser()] if site is not None else [])]
    return faults + [
        f"pins/{path.name}: no row has a variant of this name"
        for folder in folders
        for path in sorted((folder / "pins").glob("*.toml"))
        if path not in used and not path.name.startswith(hidden)
    ]
