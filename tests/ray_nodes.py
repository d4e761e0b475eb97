"""A Ray cluster of nodes that know nothing of being on one machine, and `verl-env` run on its head."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from nodes import SWITCH, Nodes
from tiny import ROOT, Done

PORT = 6379
STORE_BYTES = 100_000_000
# A node that is gone is known to be after some seconds; this machine may be slow, and starts are waited for.
SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_health_check_initial_delay_ms": "2000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "5000",
    "RAY_health_check_failure_threshold": "3",
    "RAY_raylet_start_wait_time_s": "400",
    "RAY_gcs_server_request_timeout_seconds": "300",
}
INDEX = ROOT / "benchmarks" / "index.py"


@dataclass
class RayNodes(Nodes):
    """Nodes that each run Ray, from an environment that all of them see; the first is the head."""

    environment: Path = Path()
    index: str = ""

    @property
    def python(self) -> Path:
        """The Python that has Ray."""
        return self.environment / "bin" / "python"

    @property
    def head(self) -> str:
        """The name of the first node."""
        return next(iter(self.nodes))

    def start(self, described) -> None:
        """Start nodes by name, each with the variables that describe it."""
        (first, its), *others = described.items()
        self.add_node(first, **its)
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda it: self.add_node(it[0], **it[1]), others))

    def add_node(self, name, **described) -> None:
        """Start a node and have it join; one that was there before comes back with its disk."""
        self.make(name, **described)
        words = ["--num-cpus=1", f"--object-store-memory={STORE_BYTES}", "--disable-usage-stats"]
        if name == self.head:
            words += ["--head", f"--port={PORT}", "--include-dashboard=false"]
        else:
            words += [f"--address={self.nodes[self.head].address}:{PORT}"]
        words += [f"--node-ip-address={self.nodes[name].address}"]
        done = self.on(name, self.environment / "bin" / "ray", "start", *words)
        assert 0 == done.code, done.out + done.err

    def variables(self, name, **more) -> dict[str, str]:
        """Return what a node's programs are started with."""
        laid = {
            "PATH": os.pathsep.join(
                [os.path.dirname(sys.executable), "/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin"]
            ),
            "HOME": str(self.tmp),
            "TMPDIR": str(self.tmp),
            "RAY_TMPDIR": str(self.tmp),
            "VERL_ENV_HOME": str(self.home),
            "VERL_ENV_RAY_PYTHON": str(self.python),
            "LANG": "C.UTF-8",
            "UV_PYTHON_DOWNLOADS": "never",
            "PIP_CONFIG_FILE": os.devnull,
            "XDG_CONFIG_DIRS": str(self.tmp / "etc-xdg"),
        }
        laid |= {"UV_DEFAULT_INDEX": self.index} if self.index else {}
        return laid | SETTINGS | self.nodes[name].described | more

    def begin_on(self, name, *words, **more) -> subprocess.Popen:
        """Start a program on a node."""
        return subprocess.Popen(
            [*self.words(name), *map(str, words)],
            env=self.variables(name, **more),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def on(self, name, *words, **more) -> Done:
        """Run a program on a node to its end."""
        child = self.begin_on(name, *words, **more)
        out, err = child.communicate()
        return Done(child.returncode, out, err)

    def begin(self, *words, on="", **more) -> subprocess.Popen:
        """Start verl-env on the head, or on another node."""
        search = os.pathsep.join(filter(None, (str(ROOT / "installer"), os.environ.get("PYTHONPATH"))))
        return self.begin_on(on or self.head, sys.executable, "-m", "verl_env", *words, PYTHONPATH=search, **more)

    def __call__(self, *words, **more) -> Done:
        """Run verl-env on the head to its end."""
        child = self.begin(*words, **more)
        out, err = child.communicate()
        return Done(child.returncode, out, err)

    @contextlib.contextmanager
    def serving(self, source):
        """Serve a folder or a bundle as the index that the nodes reach; what it counts is at /count."""
        words = [*self.site.words("net"), sys.executable, INDEX, source, "0", SWITCH]
        words = [str(it) for it in words]
        with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as child:
            self.index = child.stdout.readline().strip()
            try:
                yield
            finally:
                child.terminate()

    def counted(self) -> dict[str, dict[str, int]]:
        """Return requests and bytes by file, as the index counted them."""
        script = "import sys, urllib.request as it; print(it.urlopen(sys.argv[1]).read().decode())"
        words = [*self.site.words("net"), sys.executable, "-c", script, self.index.replace("/simple/", "/count")]
        return json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)["files"]

    def kill_node(self, name) -> None:
        """End a node as one that lost its power."""
        self.stop(name)

    def alive(self) -> set[str]:
        """Return the nodes that Ray says are alive."""
        script = "import ray; ray.init(address='auto', log_to_driver=False, logging_level='ERROR');"
        script += "print(' '.join(it['NodeManagerHostname'] for it in ray.nodes() if it['Alive']))"
        done = self.on(self.head, self.python, "-c", script)
        assert 0 == done.code, done.err
        return set(done.out.split())

    def wait_until_gone(self, name) -> None:
        """Wait until Ray knows that a node is gone."""
        while name in self.alive():
            time.sleep(1)
