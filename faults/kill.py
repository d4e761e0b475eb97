#!/usr/bin/env python3
"""Kill verl-env at many instants of a real installation, and say what came of it.

    python faults/kill.py [--short] [--json FILE] [--only CAMPAIGN …]

Needs verl-env's dependencies and uv; takes about half an hour (--short: some minutes). Exit 1 when any kill left an
environment in use that is not whole, or a rerun that did not end well.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import fault_kills as kills
from fault_world import clean_settings, make_world


def main() -> int:
    """Run every campaign and print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--short", action="store_true", help="fewer instants")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures there")
    parser.add_argument("--seed", type=int, default=1, help="of the random moments")
    parser.add_argument("--only", nargs="+", metavar="CAMPAIGN", help="of steps, rollback, prune, lock, moments")
    parser.add_argument("--table", type=Path, metavar="FILE", help="print the table of figures that --json wrote")
    args = parser.parse_args()
    if args.table:
        print(table(read(args.table)))
        return 0
    clean_settings()
    rng, outcomes, began = random.Random(args.seed), {}, time.monotonic()
    with tempfile.TemporaryDirectory(prefix="verl-env-faults-") as folder:
        world = make_world(Path(folder), wheels=6 if args.short else 12, modules=20 if args.short else 30)
        os.environ |= {"VERL_ENV_HOME": str(world.home), "UV_CACHE_DIR": str(world.cache)}
        kills.progress.append(lambda: keep(args.json, outcomes))
        short = args.short
        campaigns = {
            "steps": lambda: kills.install_steps(world, outcomes, 7 if short else 1),
            "rollback": lambda: kills.rollback_steps(world, outcomes, 1 if short else 2),
            "prune": lambda: kills.prune_steps(world, outcomes, 2 if short else 20, rng),
            "lock": lambda: kills.lock_steps(world, outcomes, 4 if short else 20),
            "moments": lambda: kills.install_moments(world, outcomes, 1 if short else 20, rng),
        }
        for name in args.only or campaigns:
            campaigns[name]()
            done = sum(it.kills for it in outcomes.values())
            print(f"{done} kills, {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
            keep(args.json, outcomes)
        world.server.stop()
    print(table(outcomes))
    failures = [line for it in outcomes.values() for line in it.failures]
    print("\n".join(["", *failures]) if failures else "", file=sys.stderr)
    return 1 if failures else 0


def keep(path: Path | None, outcomes: dict[str, kills.Outcome]) -> None:
    """Write the figures so far."""
    if path:
        path.write_text(json.dumps({name: vars(it) for name, it in outcomes.items()}, indent=2, default=dict) + "\n")


def read(path: Path) -> dict[str, kills.Outcome]:
    """Read figures back."""
    counters = ("left", "in_use", "reruns")
    return {
        name: kills.Outcome(**{key: Counter(value) if key in counters else value for key, value in it.items()})
        for name, it in json.loads(path.read_text()).items()
    }


def table(outcomes: dict[str, kills.Outcome]) -> str:
    """Return the figures as Markdown."""
    lines = ["| killed in | kills | in use after it | left | rerun | failures |", "|---|---|---|---|---|---|"]
    for name, it in outcomes.items():
        cells = (name, it.kills, _counts(it.in_use), _counts(it.left), _counts(it.reruns), len(it.failures))
        lines.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    total = sum(it.kills for it in outcomes.values())
    lines.append(f"| all | {total} | | | | {sum(len(it.failures) for it in outcomes.values())} |")
    return "\n".join(lines)


def _counts(counter) -> str:
    return "; ".join(f"{name}: {count}" for name, count in counter.most_common())


if __name__ == "__main__":
    sys.exit(main())
