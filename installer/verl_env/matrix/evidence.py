"""Adding a run's evidence to a row's file, leaving what people wrote there as it is. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from verl_env.matrix.rows import Evidence


def with_evidence(text: str, evidence: Evidence) -> str:
    """Return a row's TOML with this evidence; it takes the place of an earlier entry for the same variant and level."""
    import tomlkit
    from tomlkit.items import AoT

    document = tomlkit.parse(text)
    kept = [it for it in document.get("evidence", []) if not _replaced(it, evidence)]
    entries = AoT([])
    for item in kept:
        entries.append(tomlkit.item(dict(item)))
    fresh = tomlkit.table()
    for key in ("level", "date", "python", "arch", "pins", "device", "glibc", "by"):
        fresh[key] = getattr(evidence, key)
    entries.append(fresh)
    document.pop("evidence", None)
    body = tomlkit.dumps(document).rstrip("\n")
    added = tomlkit.document()
    added["evidence"] = entries
    return f"{body}\n\n{tomlkit.dumps(added).strip()}\n"


def _replaced(item: dict[str, str], evidence: Evidence) -> bool:
    """An entry for other pins of the same variant is history that no longer counts; one of the same level is renewed."""
    same_variant = item["arch"] == evidence.arch and item["python"].split(".")[:2] == evidence.python.split(".")[:2]
    return same_variant and (item["pins"] != evidence.pins or item["level"] == evidence.level)
