"""verl-env in an allocation of a Slurm that the tests started."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from slurm_nodes import SlurmNodes
from tiny import Tool

# Speaks with the engine as the commands do: with small pieces, so that a small file has several.
SPEAK = """
import json, sys, time
from pathlib import Path
from verl_env.cluster import slurm_send, slurm_step
from verl_env.cluster.slurm import SlurmEngine
slurm_send.CHUNK, slurm_step._SILENT_SECONDS = 1 << 20, 25.0
asked = json.loads(Path(sys.argv[1]).read_text())
engine, told = SlurmEngine(), []
def hear(name, what):
    told.append([name, what])
    print("told", name, what, file=sys.stderr, flush=True)
try:
    members = engine.members()
    if "send" in asked:
        said = engine.send(members, Path(asked["send"]), asked["to"], told=hear)
    else:
        if "until" in asked:
            engine.ask(members, {**asked["request"], "files": {}, "calls": []}, seconds=asked["seconds"])
            hear("everybody", "answered")
            while not Path(asked["until"]).exists():
                time.sleep(0.1)
        answers = engine.ask(members, asked["request"], seconds=asked["seconds"], told=hear)
        said = {name: {"error": it.error, **it.said} for name, it in answers.items()}
finally:
    engine.close()
print(json.dumps({"members": [[it.name, it.address] for it in members], "said": said, "told": told}))
"""


class Job(Tool):
    """verl-env in an allocation of a cluster; `job` is one that stands already."""

    rig: SlurmNodes
    job: str = ""

    def start_python(self, *words, cwd=None, **more):
        """Start it beside the controller, as in the shell that salloc opens."""
        variables = self.variables(**self.rig.variables(), VERL_ENV_HOME=str(self.home), **more)
        variables |= {"SLURM_JOB_ID": self.job} if self.job else {}
        salloc = [] if self.job else ["salloc", "--quiet", "--no-kill", f"--nodes={len(self.rig.described)}"]
        return subprocess.Popen(
            [*self.rig.entering(), *salloc, sys.executable, *map(str, words)],
            env=variables,
            cwd=cwd or self.work,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def stand(self, *options) -> str:
        """Take an allocation that stays, and return it."""
        words = ("salloc", "--no-shell", "--no-kill", *options, f"--nodes={len(self.rig.described)}")
        said = self.rig.inside(*words).stderr
        return said.split("job allocation ")[1].split()[0]

    def speak(self, **asked):
        """Start to speak with the engine."""
        (self.work / "asked.json").write_text(json.dumps(asked))
        return self.start_python("-c", SPEAK, self.work / "asked.json")


@contextlib.contextmanager
def slurm_job(described, **options):
    """Start a cluster, and yield verl-env in a job on all its nodes; the folder's path is short enough for sockets."""
    folder = Path(tempfile.mkdtemp(prefix="ve-", dir="/tmp"))
    (folder / "work").mkdir()
    try:
        with SlurmNodes(folder=folder / "slurm", described=described, **options) as rig:
            job = Job(home=rig.home, work=folder / "work")
            job.rig = rig
            yield job
    finally:
        shutil.rmtree(folder)


def told_by(child, *wanted) -> None:
    """Read what a child says until it has told every one of these."""
    left = set(wanted)
    while left:
        line = child.stderr.readline()
        assert line, f"it ended before {left}"
        left -= {it for it in left if it in line}
