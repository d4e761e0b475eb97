#!/usr/bin/env python3
"""Time `cluster install` beside every node installing for itself, and count what the index sends; print it as Markdown.

    python benchmarks/cluster.py ROW --ray ENVIRONMENT [--python X.Y] [--nodes 1 2 4 8] [--uplink MBIT] [--memory]
                                 [--work FOLDER] [--json FILE]

The nodes are those of the tests: namespaces of this machine, which share its cores and its disk, with Ray from an
environment that has it. Between them is no limit; from the index comes no more than `--uplink`. Needs root, verl-env's
development tools, and room for the row's wheels and an environment on each node.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "installer"), str(ROOT / "tests")]

from nodes import some_nodes, why_none  # noqa: E402 - found by the line above
from ray_nodes import RayNodes  # noqa: E402

DISK_BYTES = 8_000_000_000


@dataclass(frozen=True)
class Figure:
    """One installation on all nodes: when the wheels were everywhere (where that is told apart), and when all stood."""

    how: str
    nodes: int
    carried_seconds: float | None
    seconds: float
    index_bytes: int
    most_requests: int


class Bench:
    """A row, its wheels, and how nodes install it."""

    def __init__(self, args) -> None:
        self.args = args
        self.bundle = args.work.absolute() / f"{args.row}.tar"
        gpu = [] if args.row.startswith("cpu") else ["--driver", "580.95.05", "--gpu", "h200"]
        self.described = dict(zip(("VERL_ENV_DRIVER", "VERL_ENV_GPU"), gpu[1::2], strict=False))
        cpu = [] if gpu else ["--cpu"]
        self.words = ["--row", args.row, "--python", args.python, "--level", "files", "--json", *cpu]

    def bring(self) -> None:
        """Make the bundle that the index serves, from wherever this machine's own settings lead."""
        if not self.bundle.exists():
            self.bundle.parent.mkdir(parents=True, exist_ok=True)
            words = ["-m", "verl_env", "bundle", self.args.row, "--python", self.args.python, "-o", str(self.bundle)]
            search = {"PYTHONPATH": str(ROOT / "installer")}
            subprocess.run([sys.executable, *words], check=True, env=os.environ | search, stdout=sys.stderr)

    def measure(self, count) -> list[Figure]:
        """Install both ways on so many nodes, each time from nothing."""
        options = {"environment": self.args.ray, "disk_bytes": DISK_BYTES, "on_disk": not self.args.memory}
        figures = []
        with some_nodes(RayNodes, **options) as nodes:
            nodes.start({f"n{number}": self.described for number in range(1, count + 1)})
            limit = ["tbf", "rate", f"{self.args.uplink}mbit", "burst", "256kb", "latency", "100ms"]
            nodes.beside("tc", "qdisc", "replace", "dev", "switch", "root", *limit)
            for how in (self.together, self.each):
                for name in nodes.nodes:
                    nodes.wipe(name)
                with nodes.serving(self.bundle):
                    figures.append(how(nodes))
                print(figures[-1], file=sys.stderr)
        return figures

    def together(self, nodes) -> Figure:
        """Run `cluster install` on the first node."""
        started, carried = time.monotonic(), None
        child = nodes.begin("cluster", "install", *self.words)
        said = []
        for line in child.stderr:
            said.append(line)
            if carried is None and line.rstrip().endswith(": build"):
                carried = time.monotonic() - started
        out, _ = child.communicate()
        seconds = time.monotonic() - started
        if child.returncode:
            sys.exit(f"cluster install ended with {child.returncode}: {out}{''.join(said[-20:])}")
        return self.figure("cluster install", nodes, carried, seconds)

    def each(self, nodes) -> Figure:
        """Run `install` on every node at the same time."""
        started = time.monotonic()
        with ThreadPoolExecutor(len(nodes.nodes)) as pool:
            ended = list(pool.map(lambda name: nodes("install", *self.words, on=name), nodes.nodes))
        for done in ended:
            if done.code:
                sys.exit(f"install ended with {done.code}: {done.out}{done.err[-2000:]}")
        return self.figure("every node for itself", nodes, None, time.monotonic() - started)

    @staticmethod
    def figure(how, nodes, carried, seconds) -> Figure:
        """Put together what was seen."""
        counted = nodes.counted().values()
        return Figure(
            how=how,
            nodes=len(nodes.nodes),
            carried_seconds=carried,
            seconds=seconds,
            index_bytes=sum(it["bytes"] for it in counted),
            most_requests=max(it["requests"] for it in counted),
        )


def table(figures) -> str:
    """Return the figures as Markdown."""
    head = [
        "| nodes | how | until all have the wheels | until all stand | sent by the index | requests for one wheel |"
    ]
    lines = [*head, "|---|---|---|---|---|---|"]
    for it in figures:
        carried = "" if it.carried_seconds is None else f"{it.carried_seconds:.0f} s"
        sent = f"{it.index_bytes / 1e9:.2f} GB"
        lines.append(f"| {it.nodes} | {it.how} | {carried} | {it.seconds:.0f} s | {sent} | {it.most_requests} |")
    return "\n".join(lines)


def main() -> int:
    """Measure each number of nodes, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("row", metavar="ROW")
    parser.add_argument("--ray", type=Path, required=True, metavar="ENVIRONMENT", help="an environment that has Ray")
    parser.add_argument("--python", metavar="X.Y", default="3.11")
    parser.add_argument("--nodes", type=int, nargs="+", default=[1, 2, 4, 8], metavar="N")
    parser.add_argument("--uplink", type=int, default=1000, metavar="MBIT", help="what the index sends each second")
    parser.add_argument("--memory", action="store_true", help="nodes' disks lie in memory")
    parser.add_argument("--work", type=Path, default=Path("build/benchmarks"), help="a folder with room for the wheels")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure there too")
    args = parser.parse_args()
    if why := why_none():
        sys.exit(why)
    bench = Bench(args)
    bench.bring()
    figures = [figure for count in args.nodes for figure in bench.measure(count)]
    print(f"{args.row}, Python {args.python}, {os.cpu_count()} cores, the index's uplink {args.uplink} Mbit/s\n")
    print(table(figures))
    if args.json:
        args.json.write_text(json.dumps([asdict(it) for it in figures], indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
