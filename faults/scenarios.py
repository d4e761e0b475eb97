#!/usr/bin/env python3
"""Make every fault that is no kill, once each, and print what came of it as a Markdown table.

python faults/scenarios.py [NAME …]

Needs verl-env's dependencies and uv; root for the full and read-only disks; LIBFAKETIME=libfaketime.so.1 for the clock.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from fault_scenarios import SCENARIOS, NotHereError
from fault_world import clean_settings, make_world


def main() -> int:
    """Give each fault a world of its own."""
    clean_settings()
    wanted = sys.argv[1:] or list(SCENARIOS)
    print("| fault | exit | left | rerun | said |\n|---|---|---|---|---|")
    for name in wanted:
        with tempfile.TemporaryDirectory(prefix="verl-env-faults-") as folder:
            world = make_world(Path(folder), wheels=8, modules=10)
            os.environ["VERL_ENV_HOME"] = str(world.home)
            try:
                seen = SCENARIOS[name](world)
            except NotHereError as err:
                print(f"| {name} | not run | | | {err} |", flush=True)
                continue
            finally:
                world.server.stop()
        errors = [line for line in seen.said.splitlines() if line.startswith(("error:", "warning:"))]
        said = "; ".join([*(line.replace(folder, "…") for line in errors[-1:]), *([seen.note] if seen.note else [])])
        rerun = "" if seen.rerun is None else f"exit {seen.rerun}"
        cells = (name, seen.code, ", ".join(seen.left) or "nothing", rerun, said.replace("|", "/"))
        print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
