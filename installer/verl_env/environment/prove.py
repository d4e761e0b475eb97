"""An environment's proof, run in it as it will be used: level by level, as far as this node allows."""

from __future__ import annotations

import platform
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from verl_env import output, paths
from verl_env.environment.activation import sealed_environ
from verl_env.environment.base import Base
from verl_env.environment.exports import Export
from verl_env.environment.receipt import Proved, Receipt, Shown, now, with_proof, write_receipt
from verl_env.errors import SmokeError, UsageError
from verl_env.node.facts import Gpu, Node
from verl_env.node.names import NO_DEVICE
from verl_env.node.probe import probe_node
from verl_env.node.use import pynvml_file
from verl_env.proof.allocation import Allocation
from verl_env.proof.device_proof import prove_device
from verl_env.proof.gpus import find_gpus
from verl_env.proof.levels import LEVELS, NEED_GPU, ON_GPU, check_jobs, import_jobs, reaches
from verl_env.proof.library_proof import prove_linkage
from verl_env.proof.library_survey import Environment
from verl_env.proof.linkage import Finding
from verl_env.proof.runs import Job, Run, run_jobs
from verl_env.records import to_plain

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is proved: an environment's folder, what it must import, its set, and the variables it is used with.

    `python` is its minor; `base` what it rests on.
    """

    folder: Path
    python: str
    cuda: str | None
    imports: tuple[str, ...]
    packages: Mapping[str, str]
    settings: tuple[str, ...]
    exports: tuple[Export, ...]
    base: Base | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What was shown: the `level` reached, each run, and `not_shown`: the levels that were asked for, each with why.

    `device` names the GPUs that kernels ran on; `level` is None when only some checks were asked for. `findings` are
    those of `linkage`, each explained.
    """

    level: str | None
    runs: tuple[Run, ...]
    not_shown: dict[str, str]
    device: str = ""
    findings: tuple[Finding, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know of what was not shown."""
        return tuple(f"not shown: {level}: {why}" for level, why in self.not_shown.items())


def prove(subject: Subject, level: str, *, seconds: float, node: Node | None = None) -> Proof:
    """Show as much as was asked for and as this node allows; raises SmokeError when something fails.

    With a `node` that was described, `device` is held against its GPUs, and no kernel runs.
    """
    runs: tuple[Run, ...] = ()
    reached = "files"
    if reaches(level, "imports"):
        jobs = import_jobs(subject.imports)
        if reaches(level, "behaviour"):
            jobs += check_jobs("behaviour", subject.packages, subject.settings)
        runs += _run(subject, jobs, {}, seconds=seconds)
        reached = "behaviour" if reaches(level, "behaviour") else "imports"
        _stop_at_failures(subject, runs)
    findings: tuple[Finding, ...] = ()
    if reaches(level, "linkage"):
        run, findings = prove_linkage(libraries_of(subject), _logs(subject))
        runs += (run,)
        _stop_at_failures(subject, runs, findings)
        reached = "linkage"
    shown = Proof(level=reached, runs=runs, not_shown={}, findings=findings)
    return _on_gpus(subject, shown, level, seconds=seconds, node=node) if reaches(level, "device") else shown


def _on_gpus(subject: Subject, shown: Proof, level: str, *, seconds: float, node: Node | None) -> Proof:
    """Go on with what needs a GPU, here or described: device code against it, then kernels."""
    gpus = Allocation() if node else _gpus_for(subject)
    here = node or _node_with(gpus)
    if not here.gpus:
        why = gpus.why_none or "no GPU is named"
        return replace(shown, not_shown={name: why for name in NEED_GPU if reaches(level, name)})
    run = prove_device(libraries_of(subject), here, _logs(subject))
    runs = (*shown.runs, run)
    _stop_at_failures(subject, runs)
    shown = replace(shown, level="device", runs=runs, device=gpus.name if gpus.devices else "")
    if not reaches(level, "kernel"):
        return shown
    if node or gpus.why_none:
        return replace(shown, not_shown={"kernel": gpus.why_none or "the GPUs are described, and not here"})
    jobs = check_jobs("kernel", subject.packages, subject.settings, str(pynvml_file() or ""))
    found = _one_by_one(subject, jobs, gpus.variables, seconds=seconds)
    _stop_at_failures(subject, (*runs, *found))
    if all(run.skipped for run in found):
        return replace(shown, runs=(*runs, *found), not_shown={"kernel": "no check of this set has anything to show"})
    return replace(shown, level="kernel", runs=(*runs, *found))


def _node_with(gpus: Allocation) -> Node:
    """Return this node with the GPUs that may be used, and no others."""
    found = tuple(Gpu(name=it.name, source="libcuda", compute_capability=it.compute_capability) for it in gpus.every)
    return replace(probe_node(folders={}, interpreters=False), gpus=found) if found else Node()


def _logs(subject: Subject) -> Path:
    return paths.logs() / subject.folder.name


def libraries_of(subject: Subject) -> Environment:
    """Return what the `linkage` level reads: of a base, what is used of it."""
    search = [it.value for it in subject.exports if it.name == "LD_LIBRARY_PATH" and it.value]
    base = subject.base
    return Environment(
        folder=subject.folder,
        python=subject.python,
        cuda=subject.cuda,
        search=tuple(part for value in search for part in value.split(":")),
        base_folders=base.folders if base else (),
        base_packages=frozenset(canonicalize_name(it.split(" ")[0]) for it in base.used) if base else frozenset(),
    )


def prove_only(subject: Subject, names: tuple[str, ...], *, seconds: float) -> Proof:
    """Run the checks of these names; no level is reached by that."""
    pynvml = str(pynvml_file() or "")
    known = {job.name: job for level in LEVELS for job in check_jobs(level, subject.packages, subject.settings, pynvml)}
    if unknown := [name for name in names if name not in known]:
        hint = f"name some of: {', '.join(known)}"
        raise UsageError(f"this environment has no check `{unknown[0]}`", hint=hint)
    jobs = tuple(known[name] for name in names)
    gpus = _gpus_for(subject) if any(job.level in ON_GPU for job in jobs) else Allocation()
    if gpus.why_none:
        raise SmokeError(f"`{names[0]}` needs a GPU: {gpus.why_none}")
    variables = gpus.variables if gpus.devices else {}
    runs = _one_by_one(subject, jobs, variables, seconds=seconds)
    _stop_at_failures(subject, runs)
    return Proof(level=None, runs=runs, not_shown={}, device=gpus.name if gpus.devices else "")


def subject_of(folder: Path, receipt: Receipt) -> Subject:
    """Return what there is to prove of an environment that stands."""
    return Subject(
        folder=folder,
        python=".".join(receipt.python.split(".")[:2]),
        cuda=receipt.cuda,
        imports=receipt.imports,
        packages=receipt.set,
        settings=receipt.settings,
        exports=receipt.exports,
        base=receipt.base,
    )


def keep_proof(folder: Path, receipt: Receipt, proof: Proof) -> None:
    """Write what was shown into the receipt; an environment that cannot be written stays as it is, aloud."""
    proved = Proved(
        level=proof.level or "files",
        device=proof.device or NO_DEVICE,
        host=platform.node(),
        when=now(),
        shown=shown_by(proof),
    )
    try:
        write_receipt(folder, with_proof(receipt, proved))
    except OSError as err:
        output.warn(f"the receipt does not say so: `{folder}` cannot be written ({err.strerror})")


def _gpus_for(subject: Subject) -> Allocation:
    """Return the GPUs to use, saying which are left alone."""
    if subject.cuda is None:
        return Allocation(why_none="a set for the CPU has no kernels")
    gpus = find_gpus()
    for note in gpus.notes:
        output.warn(note)
    return gpus


def shown_by(proof: Proof) -> tuple[Shown, ...]:
    """Return what a receipt keeps of each run."""
    return tuple(
        Shown(
            level=run.level,
            name=run.name,
            seconds=round(run.seconds, 2),
            said="" if run.level == "imports" else run.last_line,
            skipped=run.skipped,
        )
        for run in proof.runs
    )


def _run(
    subject: Subject, jobs: tuple[Job, ...], variables: Mapping[str, str], *, seconds: float, at_once: int | None = None
) -> tuple[Run, ...]:
    return run_jobs(
        subject.folder / "bin" / "python",
        jobs,
        env=sealed_environ(subject.folder, subject.exports) | dict(variables),
        log_folder=_logs(subject),
        seconds=seconds,
        at_once=at_once,
    )


def _one_by_one(
    subject: Subject, jobs: tuple[Job, ...], variables: Mapping[str, str], *, seconds: float
) -> tuple[Run, ...]:
    """Run jobs that share GPUs; what they compile goes to caches that are empty now and gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="verl-env-proof-", ignore_cleanup_errors=True) as caches:
        return _run(subject, jobs, {**variables, "VERL_ENV_PROOF_CACHES": caches}, seconds=seconds, at_once=1)


def _stop_at_failures(subject: Subject, runs: tuple[Run, ...], findings: tuple[Finding, ...] = ()) -> None:
    """Raise SmokeError with each failed run's last line and log, and each fault of `linkage`."""
    failed = [run for run in runs if not run.passed]
    if not failed:
        return
    name = subject.folder.name
    error = SmokeError(
        f"{len(failed)} of {len(runs)} proofs failed in {name}",
        details=tuple(line for run in failed for line in (f"{run.name}: {run.last_line}", f"  log: {run.log}")),
        hint="read the log of the first one",
    )
    error.said = "\n".join(Path(run.log).read_text(encoding="utf-8", errors="replace") for run in failed)
    error.data = {
        "environment": name,
        "runs": [to_plain(run) for run in runs],
        "findings": [to_plain(it) for it in findings],
    }
    raise error
