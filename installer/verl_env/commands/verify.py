"""`verl-env verify [NAME] [--deep]`: an environment held against the manifest of what was installed."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from verl_env import paths
from verl_env.environment.cache_links import linked_in_cache
from verl_env.environment.receipt import find_environment
from verl_env.environment.verify import CHANGED, verify_receipt
from verl_env.errors import NoEnvironmentError
from verl_env.output import Result, human_bytes
from verl_env.records import to_plain

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from verl_env.environment.receipt import Receipt
    from verl_env.environment.verify import Fault, Verified

_SHOWN = 20  # faults in the text; --json has all of them
_TRACED = 200  # bad files whose origin in the cache is looked for


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add which environment, and how thoroughly."""
    parser.add_argument("environment", nargs="?", metavar="NAME", help="an environment (default: the current one)")
    parser.add_argument("--deep", action="store_true", help="compare the sha256 of every file")


def run(args: argparse.Namespace) -> Result:
    """Compare; exit 1 when a file is missing, changed or extra."""
    folder, receipt = find_environment(args.environment)
    found, faults = look_into(folder, receipt, deep=args.deep)
    data: dict[str, Any] = {
        "environment": folder.name,
        "deep": args.deep,
        "files": found.files,
        "hashed": found.hashed,
        "hashed_bytes": found.hashed_bytes,
        "caches_grown": found.grown,
        "faults": [to_plain(fault) for fault in faults],
    }
    text = _fault_text(folder, faults) if faults else _good_text(folder, found)
    return Result(data=data, text=text, exit_code=1 if faults else 0)


def look_into(folder: Path, receipt: Receipt, *, deep: bool) -> tuple[Verified, tuple[Fault, ...]]:
    """Verify an environment and trace its bad files to uv's cache; raises NoEnvironmentError without a manifest."""
    if not receipt.manifest:
        raise NoEnvironmentError(
            f"{folder.name} was made by a verl-env that wrote no manifest", hint=f"verl-env repair {folder.name}"
        )
    found = verify_receipt(folder, receipt, deep=deep)
    cache = paths.uv_cache()
    faults = tuple(
        replace(fault, cached=linked_in_cache(folder, fault.path, cache))
        if fault.kind == CHANGED and at < _TRACED
        else fault
        for at, fault in enumerate(found.faults)
    )
    return found, faults


def _good_text(folder: Path, found: Verified) -> str:
    hashed = f", {found.hashed} of them by sha256 ({human_bytes(found.hashed_bytes)})" if found.hashed else ""
    grown = f"; {found.grown} caches of bytecode appeared since, as they may" if found.grown else ""
    return f"{folder.name} is as it was made: {found.files} files{hashed}{grown}"


def _fault_text(folder: Path, faults: tuple[Fault, ...]) -> str:
    """Name packages first, then files, then the cache where it is bad too, then what to do."""
    kinds = Counter(fault.kind for fault in faults)
    packages = Counter(fault.package or "no package" for fault in faults)
    lines = [f"{folder.name} is not as it was made: " + ", ".join(f"{count} {kind}" for kind, count in kinds.items())]
    lines.append("packages: " + ", ".join(f"{name} ({count})" for name, count in packages.most_common()))
    for fault in faults[:_SHOWN]:
        lines.append(f"{fault.kind:<8} {fault.path}: {fault.what}" + (f" ({fault.package})" if fault.package else ""))
        lines += [f"         uv's cache has the same bad file: {path}" for path in fault.cached]
    if len(faults) > _SHOWN:
        lines.append(f"… and {len(faults) - _SHOWN} more (--json has all of them)")
    return "\n".join([*lines, f"rebuild it: verl-env repair {folder.name}"])
