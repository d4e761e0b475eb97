#!/usr/bin/env python3
"""Time verl-env beside plain uv and pip, in one run, from one index on loopback; print the figures as Markdown.

    python benchmarks/run.py ROW [--python X.Y] [--runs 5] [--only NAME …] [--work FOLDER] [--json FILE]

Needs verl-env's dependencies, uv, hyperfine, and room for the row's wheels and three environments. Ratios are what
counts: the times are those of one machine on one day.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
UV = "uv"
AMBIENT = ("PIP_", "UV_", "VERL_ENV_", "PYTHON")


@dataclass(frozen=True)
class Case:
    """One comparison: commands by name, what to do before all and before each run, and what verl-env promises."""

    name: str
    commands: dict[str, str]
    needs: str = "true"
    prepare: str = "true"
    promise: str = ""


class Bench:
    """The folders, the index and the commands of one row."""

    def __init__(self, row: str, python: str, work: Path) -> None:
        self.row, self.python, self.work = row, python, work
        self.home, self.plain = work / "home", work / "plain"
        self.bundle, self.lock = work / f"{row}.tar", work / "pylock.toml"
        self.requirements = work / "requirements.txt"
        self.environ = {name: it for name, it in os.environ.items() if not name.startswith(AMBIENT)}
        beside = os.path.dirname(sys.executable)  # where verl-env's own uv is
        self.environ["PATH"] = os.pathsep.join([beside, self.environ["PATH"]])
        self.environ |= {"PYTHONPATH": str(HERE.parent / "installer"), "UV_NO_CONFIG": "1"}
        self.tool = f"{shlex.quote(sys.executable)} -m verl_env"
        self.base = self.interpreter()
        self.url = ""

    def prepare(self) -> subprocess.Popen:
        """Bring the wheels, start the index, write the lock and the requirements; return the index's process."""
        self.work.mkdir(parents=True, exist_ok=True)
        if not self.bundle.exists():
            # The wheels come from wherever this machine's own settings lead.
            words = [*shlex.split(self.tool), "bundle", self.row, "--python", self.python, "-o", str(self.bundle)]
            subprocess.run(words, check=True, env=os.environ | {"PYTHONPATH": self.environ["PYTHONPATH"]})
        words = [sys.executable, str(HERE / "index.py"), str(self.bundle), "0"]
        server = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        self.url = server.stdout.readline().strip()
        words = f"--row {self.row} --python {self.python} --index {self.url} --allow-unproved {self.node()}"
        self.shell(f"{self.tool} lock {words} -o {self.lock} --home {self.home}")
        self.shell(f"{self.tool} lock {words} --format requirements -o {self.requirements} --home {self.home}")
        return server

    def node(self) -> str:
        """Describe a node that the row fits: nothing of this machine is to stand in the way."""
        return "--cpu" if self.row.startswith("cpu") else "--driver 580.95.05 --gpu h200"

    def shell(self, line: str) -> None:
        """Run a line that is not timed."""
        subprocess.run(["sh", "-c", line], check=True, env=self.environ, stdout=subprocess.DEVNULL)

    def install(self, more: str = "") -> str:
        """Return the command that installs with verl-env and proves nothing."""
        return (
            f"{self.tool} install {self.lock} --level files --index {self.url} --home {self.home} {self.node()} {more}"
        )

    def interpreter(self) -> str:
        """Return the Python that verl-env takes: uv must take the same, and does not look where verl-env looks."""
        words = [*shlex.split(self.tool), "detect", "--json"]
        done = subprocess.run(words, check=True, env=self.environ, capture_output=True, text=True)
        found = json.loads(done.stdout)["data"]["interpreters"]
        fitting = [it["path"] for it in found if it["version"].startswith(self.python + ".")]
        if not fitting:
            sys.exit(f"no Python {self.python} here, of {len(found)} that were found")
        return fitting[0]

    def venv(self) -> str:
        """Return the command that makes a virtual environment with plain uv."""
        return f"{UV} venv -q --clear --python {shlex.quote(self.base)} {self.plain}/env"

    def uv_sync(self, *more: str, file: Path | None = None) -> str:
        """Return the commands that make a virtual environment and sync it with plain uv."""
        given = file or self.requirements
        hashed = "" if file else "--require-hashes"
        words = f"{UV} pip sync -q {given} {hashed} --python {self.plain}/env/bin/python --index-url {self.url}"
        return f"{self.venv()} && {words} --cache-dir {self.plain}/cache {' '.join(more)}"

    def cases(self) -> list[Case]:
        """Return every comparison."""
        gone = f"rm -rf {self.home}/environments {self.home}/current {self.plain}/env"
        all_gone = f"rm -rf {self.home} {self.plain}"
        link, compiled = "--link-mode hardlink", "--compile-bytecode"
        pip = (
            f"rm -rf {self.plain}/pip && $(readlink -f {self.plain}/env/bin/python) -m venv {self.plain}/pip && "
            f"{self.plain}/pip/bin/python -m pip install -q --no-deps --require-hashes -r {self.requirements} "
            f"--index-url {self.url} --no-cache-dir --disable-pip-version-check"
        )
        return [
            Case(
                "cold",
                {"uv": self.uv_sync(compiled), "verl-env": self.install()},
                prepare=all_gone,
                promise="verl-env ≤ 1.10 x uv",
            ),
            Case(
                "warm",
                {
                    "uv, offline, hard links": self.uv_sync(compiled, link, "--offline"),
                    "verl-env": self.install(),
                    "uv, the same, bytecode left out": self.uv_sync(link, "--offline"),
                    "uv, pylock.toml, from its cache": self.uv_sync(compiled, file=self.lock),
                },
                prepare=gone,
                needs=f"{self.install()} && {self.uv_sync()} && {self.uv_sync(file=self.lock)}",
                promise="verl-env ≤ 1.5 x uv",
            ),
            Case(
                "pip",
                {"pip, nothing cached": pip},
                needs=self.venv(),
            ),
            Case("again", {"verl-env, the lock that is installed": self.install()}, self.install(), promise="< 0.3 s"),
            Case(
                "verify",
                {
                    "verl-env verify": f"{self.tool} verify --home {self.home}",
                    "sha256sum on every core": (
                        f"find {self.home}/environments -type f -print0 | "
                        f"xargs -0 -n 400 -P {os.cpu_count()} sha256sum > /dev/null"
                    ),
                    "verl-env verify --deep": f"{self.tool} verify --deep --home {self.home}",
                },
                needs=self.install(),
                promise="verify ≤ 3 s for 65,000 files; --deep at ≥ 70 % of sha256sum's rate",
            ),
            Case(
                "smoke",
                self.smoke(),
                self.install(),
                promise="all at once ≤ 1.3 x the slowest alone, where cores allow",
            ),
        ]

    def smoke(self) -> dict[str, str]:
        """Return the imports one by one, and all of them by verl-env."""
        python = f"{self.home}/current/bin/python"
        table = json.loads(
            subprocess.run(
                [*shlex.split(self.tool), "matrix", "show", self.row, "--json"],
                check=True,
                env=self.environ,
                capture_output=True,
                text=True,
            ).stdout
        )
        imports = table["data"]["row"]["smoke"]["imports"]
        alone = {f"import {it}": f"{python} -c 'import {it}'" for it in imports}
        return {**alone, "verl-env smoke": f"{self.tool} smoke --level imports --home {self.home}"}

    def memory(self) -> int:
        """Return the peak of verl-env's own resident memory in an installation, in bytes; uv's is its own."""
        script = (
            "import resource, sys; from verl_env.cli import main; code = main(sys.argv[1:]);"
            "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, file=sys.stderr); sys.exit(code)"
        )
        self.shell(f"{self.install()} && rm -rf {self.home}/environments {self.home}/current")
        words = [sys.executable, "-c", script, *shlex.split(self.install())[3:]]
        done = subprocess.run(words, check=True, env=self.environ, capture_output=True, text=True)
        return int(done.stderr.split()[-1])


def time_case(bench: Bench, case: Case, runs: int) -> dict[str, list[float]]:
    """Run one comparison under hyperfine and return each command's times in seconds."""
    found = bench.work / "hyperfine.json"
    words = ["hyperfine", "--style", "basic", "--runs", str(runs), "--export-json", str(found)]
    words += ["--prepare", case.prepare]
    for name, command in case.commands.items():
        words += ["-n", name, command]
    subprocess.run(words, check=True, env=bench.environ, stdout=sys.stderr)
    return {it["command"]: it["times"] for it in json.loads(found.read_text())["results"]}


def median(times: list[float]) -> float:
    """Return the median: the mean would let one pause of the machine speak for all."""
    ordered = sorted(times)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def table(cases: list[Case], figures: dict[str, dict[str, list[float]]]) -> str:
    """Return the figures as Markdown: the median of each command, and its ratio to the first."""
    lines = ["| | command | runs | median | ratio to the first |", "|---|---|---|---|---|"]
    for case in cases:
        times = figures.get(case.name, {})
        first = median(next(iter(times.values()))) if times else 0.0
        for number, (name, it) in enumerate(times.items()):
            head = f"{case.name} ({case.promise})" if number == 0 and case.promise else case.name if number == 0 else ""
            lines.append(f"| {head} | {name} | {len(it)} | {median(it):.2f} s | {median(it) / first:.2f} |")
    return "\n".join(lines)


def main() -> int:
    """Prepare, time every case, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("row", metavar="ROW")
    parser.add_argument("--python", metavar="X.Y", default="3.12")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="of cold, warm, pip, again, verify, smoke, memory")
    parser.add_argument("--work", type=Path, default=Path("build/benchmarks"), help="a folder with room")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every time there too")
    args = parser.parse_args()
    bench = Bench(args.row, args.python, args.work.absolute())
    server = bench.prepare()
    figures: dict[str, dict[str, list[float]]] = {}
    peak = 0
    try:
        cases = [it for it in bench.cases() if not args.only or it.name in args.only]
        for case in cases:
            bench.shell(case.needs)
            figures[case.name] = time_case(bench, case, args.runs)
        if not args.only or "memory" in args.only:
            peak = bench.memory()
    finally:
        server.terminate()
    print(table(cases, figures))
    if peak:
        print(f"\nPeak resident memory of verl-env itself in a warm installation: {peak / 1e6:.0f} MB")
    if args.json:
        args.json.write_text(json.dumps({"row": args.row, "figures": figures, "peak": peak}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
