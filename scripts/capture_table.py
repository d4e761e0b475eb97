#!/usr/bin/env python3
"""What `verl-env capture --from` makes of every file in some folders, as a Markdown table on stdout.

    python scripts/capture_table.py [--no-lock] FOLDER…

With `--no-lock` no index is asked. Without, each lock is made as `capture --dry-run` makes it, from the index in use.
Exits 1 when a file could not be read.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

INCOHERENT = 10


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    parser.add_argument("--no-lock", action="store_true", help="only say what each file is; no index is asked")
    args = parser.parse_args()
    print("| file | understood | nearest row | on its node | lock |\n|---|---|---|---|---|")
    unread = 0
    for path in (path for folder in args.folders for path in sorted(folder.iterdir()) if path.is_file()):
        document = capture(path, no_lock=args.no_lock)
        unread += "subject" not in document["data"]
        print("| " + " | ".join(cell.replace("|", "\\|") for cell in (path.name, *row_of(document))) + " |", flush=True)
    return int(unread > 0)


def capture(path: Path, *, no_lock: bool) -> dict[str, Any]:
    """Run the command as a user does, and return its one object."""
    how = ["--no-lock"] if no_lock else ["--dry-run"]
    words = [sys.executable, "-m", "verl_env", "capture", "--from", str(path), "--json", "--quiet", *how]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def row_of(document: dict[str, Any]) -> tuple[str, str, str, str]:
    """Return the cells after the file's name."""
    data = document["data"]
    if "subject" not in data:
        return document["errors"][0]["message"], "", "", ""
    near = data["nearest"] or "none"
    distance = f" (distance {data['distance']})" if data["distance"] is not None else ""
    return understood(data["subject"], data), near + distance, on_node(data), lock_of(document)


def understood(subject: dict[str, Any], data: dict[str, Any]) -> str:
    """Say what kind of list it is, and what tells it from others."""
    versions = subject["versions"]
    said = [f"{subject['kind']}, {subject['packages']} packages"]
    said += [f"Python {subject['python']}"] if subject["python"] else []
    said += [f"{name} {versions[name]}" for name in ("verl", "torch", "vllm", "sglang") if name in versions]
    said += [f"CUDA {subject['cuda']}"] if subject["cuda"] else []
    said += [f"driver {subject['driver']}"] if subject["driver"] else []
    said += [f"{len(subject['gpus'])} x {' and '.join(dict.fromkeys(subject['gpus']))}"] if subject["gpus"] else []
    said += [f"{len(subject['unread'])} lines not understood"] if subject["unread"] else []
    return ", ".join(said) + "".join(f"; {it}" for it in data["notes"])


def on_node(data: dict[str, Any]) -> str:
    """Say how the nearest row fits the node that the file is of, and which row would run there."""
    fit, runs = data["fit"], data["runs"]
    if fit is None:
        return "names no node"
    said = fit["verdict"] + (f": {fit['reasons'][0]}" if fit["reasons"] else "")
    if runs is None:
        return f"{said}; no row runs there"
    return said if runs["id"] == fit["id"] else f"{said}; {runs['id']} runs there ({runs['verdict']})"


def lock_of(document: dict[str, Any]) -> str:
    """Say what lock it gives, or exactly why none."""
    data, code = document["data"], document["exit_code"]
    if data["unavailable"]:
        return "none: " + "; ".join(f"{it['reason']}: {it['what'][:160]}" for it in data["unavailable"])
    if code == INCOHERENT:
        error = document["errors"][0]
        return f"refused: {error['message']}" + "".join(f"; {it}" for it in error["details"])
    if code:
        return f"none: {document['errors'][0]['message']}"
    if data["digest"] is None:
        return "not asked for"
    sure: dict[str, int] = {}
    for package in data["packages"]:
        sure[package["sure"]] = sure.get(package["sure"], 0) + 1
    counts = ", ".join(f"{count} by {word}" for word, count in sorted(sure.items()))
    return f"{len(data['packages'])} packages ({counts})"


if __name__ == "__main__":
    sys.exit(main())
