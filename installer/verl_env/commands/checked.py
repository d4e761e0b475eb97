"""What `lock --check` found out of one lockfile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from verl_env.lock.compare import Difference

if TYPE_CHECKING:
    import argparse

    from verl_env.lock.lockfile import Lock
    from verl_env.matrix.facts import Facts


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """One lockfile, how it differs, and what to know that is no difference; `command` writes it again."""

    file: str
    row: str
    differences: tuple[Difference, ...]
    notes: tuple[str, ...] = ()
    command: str = ""


def broken_rules(expected: Lock, allowed: set[str], facts: Facts) -> tuple[Difference, ...]:
    """Return the rules that what would be written breaks: it would not be written."""
    from verl_env.lock.coherence import find_incoherences, package_of, without_allowed

    table = expected.table
    packages = tuple(package_of(pin) for pin in expected.pins)
    found = find_incoherences(packages, cuda=table.cuda, python=table.python, machine=table.arch, facts=facts)
    refused, _ = without_allowed(found, allowed)
    return tuple(Difference(kind="rule", what=it.rule, text=f"[{it.rule}] {it.what}: {it.remedy}") for it in refused)


def other_row(found: Lock, args: argparse.Namespace) -> tuple[Difference, ...]:
    """Hold the lock against what was asked of the row on the command line."""
    table = found.table
    engine = next((name for name in ("vllm", "sglang") if name in table.set), "none")
    asked = (
        ("row", args.row, table.row),
        ("verl", args.verl, table.set.get("verl")),
        ("engine", args.engine, engine),
        ("ray", args.ray, table.set.get("ray")),
        ("python", args.python, table.python),
    )
    return tuple(
        Difference(kind="row" if name != "python" else name, what=name, text=f"{name}: {has} in the file, {wish} asked")
        for name, wish, has in asked
        if wish and wish != has
    )
