"""`verl-env report`: one file to paste into an issue: the node, the environment, what doctor says, without people."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from verl_env.commands import doctor

if TYPE_CHECKING:
    from verl_env.doctor.situation import Situation, Subject
    from verl_env.node.facts import Finding
    from verl_env.output import Result

# Variables that decide what an environment loads, compiles or sees; others are nobody's business.
_TOLD = (
    *("CUDA_", "NVIDIA_", "NCCL_", "LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHON", "PYTORCH_", "TORCH_", "TRITON_"),
    *("VLLM_", "SGLANG_", "SGL_", "FLASHINFER_", "RAY_", "HF_", "HUGGINGFACE_", "TRANSFORMERS_", "VERL_ENV_", "UV_"),
    *("PIP_", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "VIRTUAL_ENV", "SLURM_JOB_ID", "SLURM_GPUS", "OMP_NUM_THREADS"),
    *("CC", "CXX", "MAX_JOBS", "TMPDIR", "XDG_CACHE_HOME"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add which environment, a log to explain, and where to write."""
    parser.add_argument(
        "environment", nargs="?", metavar="ENVIRONMENT", help="a name, a folder or a Python (default: the current one)"
    )
    parser.add_argument(
        "--log", metavar="FILE", help="explain this failed run's output in the report, and quote its end"
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="write it there (default: stdout)")
    parser.add_argument("--deep", action="store_true", help="wait longer, and compare the environment's files")


def run(args: argparse.Namespace) -> Result:
    """Gather, take people and secrets out, and write or print."""
    from verl_env import __version__
    from verl_env.capture.read_own_report import TITLE
    from verl_env.doctor.redact import without_people
    from verl_env.files import write_atomically
    from verl_env.output import Result

    situation, findings, _ = doctor.examine(_as_doctor(args))
    parts = [
        f"{TITLE}\nverl-env {__version__}, Python {sys.version.split()[0]}",
        _section("Findings", _findings(findings)),
        *([_section("Log", _log(args))] if args.log else []),
        _section("Node", _node(situation)),
        _section("Environment", _environment(situation.subject)),
        _section("Variables", _variables()),
    ]
    home, user = os.environ.get("HOME", ""), os.environ.get("USER") or os.environ.get("LOGNAME") or ""
    text = without_people("\n\n".join(parts), home=home, user=user, host=os.uname().nodename)
    # Packages stand as they are: a user may be called as one of them.
    text += f"\n\n{_section('Packages', _packages(situation.subject))}"
    if not args.output:
        return Result(data={"report": text}, text=text)
    path = Path(args.output).expanduser()
    write_atomically(path, f"{text}\n")
    return Result(data={"path": str(path)}, text=f"wrote {path}; read it before you share it")


def _as_doctor(args: argparse.Namespace) -> argparse.Namespace:
    """Return what doctor would have been asked."""
    nothing = dict.fromkeys(
        ("node", "driver", "gpu", "compute_capability", "glibc", "arch", "only", "skip", "hf_model", "ray")
    )
    return argparse.Namespace(**{**nothing, **vars(args)})


def _section(title: str, lines: list[str]) -> str:
    """Return a section whose lines stand as they are in an issue."""
    return "\n".join([f"## {title}", "```text", *(lines or ["none"]), "```"])


def _findings(findings: list[Finding]) -> list[str]:
    return [f"{it.severity}: {it.id}: {it.what}: {it.evidence}" for it in findings]


def _log(args: argparse.Namespace) -> list[str]:
    """Return what explains the log, and its last lines."""
    from verl_env.commands.doctor_log import run_log

    told = run_log(_as_doctor(args)).text.splitlines()
    with Path(args.log).expanduser().open("rb") as stream:
        stream.seek(max(0, stream.seek(0, os.SEEK_END) - 4000))
        tail = stream.read().decode(errors="replace").splitlines()[-30:]
    return [*told, "", "its last lines:", *tail]


def _node(situation: Situation) -> list[str]:
    """Return the node as `detect` shows it."""
    from verl_env.node.render import render_node

    return render_node(situation.node, dim=str, strong=str).splitlines()


def _environment(subject: Subject | None) -> list[str]:
    """Return what the environment is."""
    if subject is None:
        return []
    lines = [f"folder  {subject.folder}", f"python  {subject.answers.get('version') or subject.error}"]
    if subject.receipt:
        receipt = subject.receipt
        lines += [
            f"row     {receipt.row}",
            f"lock    {receipt.lock_digest}",
            f"level   {receipt.best[0]} on {receipt.best[1]}",
        ]
    return lines


def _variables() -> list[str]:
    """Return the variables that matter; the value of one that names a secret is left out."""
    secret = ("TOKEN", "KEY", "SECRET", "PASSWORD", "PASSWD")
    return [
        f"{name}={'…' if any(word in name for word in secret) else value}"
        for name, value in sorted(os.environ.items())
        if name.startswith(_TOLD)
    ]


def _packages(subject: Subject | None) -> list[str]:
    """Return the packages as requirements, so that `capture --from` reads them back."""
    return [f"{it.name}=={it.version}" for it in subject.packages] if subject else []
