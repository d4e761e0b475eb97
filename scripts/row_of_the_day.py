"""Resolve one row of the matrix for real, chosen by the date, and say how far the index has drifted from its pins.

Every row that the default index serves has its day. A row with a date of its own (`exclude_newer`) should not
drift at all; others drift as upstream releases. Fails when the row can no longer be resolved, with --strict also
when anything drifted.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import io
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "installer"))

from verl_env import cli
from verl_env.matrix.load import load_matrix


def variants() -> list[tuple[str, str, str]]:
    """Return (row, Python, architecture) of all pins that need no other index than the default, in a fixed order."""
    entries = load_matrix().entries.values()
    return sorted(
        (entry.id, pins.python, pins.arch)
        for entry in entries
        for pins in entry.pins
        if set(pins.sources) == {"default"}
    )


def of_the_day(every: list[tuple[str, str, str]], day: dt.date) -> tuple[str, str, str]:
    """Return the variant whose turn it is: another one each day, the same one all day."""
    return every[day.toordinal() % len(every)]


def main() -> int:
    """Resolve and report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0], allow_abbrev=False)
    parser.add_argument("--date", type=dt.date.fromisoformat, default=dt.datetime.now(dt.timezone.utc).date())
    parser.add_argument("--strict", action="store_true", help="fail on any drift")
    args = parser.parse_args()
    row, python, arch = of_the_day(variants(), args.date)
    words = ["matrix", "resolve", row, "--python", python, "--arch", arch, "--dry-run", "--no-clashes", "--json"]
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        code = cli.main(words)
    if code != 0:
        print(f"{row} (Python {python} on {arch}) can no longer be resolved", file=sys.stderr)
        return code
    changes = json.loads(said.getvalue())["data"]["variants"][0]["changes"]
    print(f"{row} (Python {python} on {arch}): {f'{len(changes)} changes since its pins' if changes else 'as pinned'}")
    for change in changes:
        print(f"  {change}")
    return 1 if changes and args.strict else 0


if __name__ == "__main__":
    raise SystemExit(main())
