"""The `device` level: the GPUs against what the packages' own binaries were compiled for. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from verl_env.matrix.device_code import Unit
from verl_env.matrix.facts import BuildFacts, admits


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of GPU: a name for people, and its compute capability."""

    name: str
    compute_capability: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One package against one kind of GPU: whether it `runs`, and what it has, as `7.5 8.0 PTX 9.0`."""

    package: str
    kind: Kind
    runs: bool
    has: str


def judge_device(built: Mapping[str, Unit], kinds: Sequence[Kind], *, ptx_ok: bool) -> tuple[Verdict, ...]:
    """Hold each package against each kind of GPU.

    `ptx_ok` is whether the driver can compile the set's PTX: one that carries the toolkit by minor-version
    compatibility cannot.
    """
    return tuple(
        Verdict(package=name, kind=kind, runs=_runs(name, unit, kind, ptx_ok=ptx_ok), has=written(unit))
        for name, unit in built.items()
        for kind in kinds
    )


def _runs(name: str, unit: Unit, kind: Kind, *, ptx_ok: bool) -> bool:
    build = BuildFacts(
        package=name,
        version="",
        machine="",
        read="wheel",
        source="installed",
        architectures=unit.binaries,
        ptx=unit.ptx,
    )
    return bool(admits(build, kind.compute_capability, ptx_ok=ptx_ok))


def written(unit: Unit) -> str:
    """Return architectures as people read them."""
    return " ".join([*unit.binaries, *(f"PTX {it}" for it in unit.ptx)])


def said(verdicts: Sequence[Verdict], *, ptx_ok: bool) -> str:
    """Say in a line which packages lack code for which GPU, or which have it."""
    lacking = [it for it in verdicts if not it.runs]
    if lacking:
        ptx = "" if ptx_ok else " (the driver does not compile PTX of this toolkit)"
        return "; ".join(
            f"{it.package} has no code for {it.kind.name} ({it.kind.compute_capability}); it has {it.has}{ptx}"
            for it in lacking
        )
    kinds = ", ".join(dict.fromkeys(f"{it.kind.name} ({it.kind.compute_capability})" for it in verdicts))
    return f"{kinds}: {', '.join(dict.fromkeys(it.package for it in verdicts))} have code for it"
