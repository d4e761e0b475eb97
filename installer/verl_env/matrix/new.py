"""A row's skeleton, filled from what verl and an engine say of themselves and from torch.toml. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from verl_env.errors import UsageError
from verl_env.matrix.facts import BuildFacts
from verl_env.matrix.releases import Metadata

if TYPE_CHECKING:
    from verl_env.matrix.facts import Facts

PYTHONS = ("3.13", "3.12", "3.11", "3.10")  # the row's order: newest first
ARCHITECTURES = ("x86_64", "aarch64")
HEADLINES = ("flashinfer-python", "ray", "transformers", "tensordict", "numpy", "sgl-kernel", "sglang-kernel")
_EXTRA = re.compile(r"""extra == ['"]([\w.-]+)['"]""")


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """What a new row is made from: upstream's metadata, the engine's files, and which Pythons are wanted."""

    verl: Metadata
    engine: Metadata | None = None
    engine_files: tuple[str, ...] = ()
    pythons: tuple[str, ...] = ()
    torch: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """What metadata and facts made of a draft; `notes` say what they could not tell."""

    id: str
    title: str
    cuda: str
    pythons: tuple[str, ...]
    arch: tuple[str, ...]
    set: dict[str, str]
    build: BuildFacts
    notes: tuple[str, ...] = ()


def fill_row(draft: Draft, facts: Facts) -> Filled:
    """Fill a row; raises UsageError when what it is about is not known."""
    verl, engine = draft.verl, draft.engine
    torch = torch_of(draft)
    build = facts.build("torch", torch, machine="x86_64")
    if build is None or build.cuda is None:
        raise UsageError(
            f"torch {torch}, which {(engine or verl).name} asks for, is not in torch.toml",
            hint="read it from its wheel: python -m verl_env.matrix.wheel_facts WHEEL",
        )
    builds = [build, *([it] if engine and (it := facts.build(engine.name, engine.version, machine="x86_64")) else [])]
    cuda = max((it.cuda for it in builds if it.cuda), key=Version)
    notes = []
    if engine and len(builds) == 1:
        notes.append(
            f"which CUDA {engine.name} {engine.version} was built with is not in torch.toml; torch's is taken. "
            "`python -m verl_env.matrix.wheel_facts WHEEL` reads it"
        )
    pythons = _pythons(draft, build)
    if not pythons:
        raise UsageError("no Python is admitted by all of verl, its engine and torch", hint="leave --python out")
    label = f"+{build.local}" if build.local and "default" in build.indexes else ""
    row_set = {"verl": verl.version, "torch": f"{torch}{label}"}
    row_set |= {engine.name: engine.version} if engine else {}
    row_set |= {name: pin for name in HEADLINES if (pin := _pin(draft, name))}
    name = f"{_spelled(engine.name)} {engine.version}" if engine else "no engine"
    return Filled(
        id=_id(verl, engine, cuda),
        title=f"verl {verl.version} · {name} · CUDA {cuda}",
        cuda=cuda,
        pythons=pythons,
        arch=_architectures(draft, torch, facts),
        set=row_set,
        build=build,
        notes=tuple(notes),
    )


def extras_of(metadata: Metadata) -> set[str]:
    """Return the extras that the requirements of a release speak of."""
    return {canonicalize_name(name) for spec in metadata.requires for name in _EXTRA.findall(spec)}


def exact_pin(metadata: Metadata, package: str, extra: str | None = None) -> str | None:
    """Return the version that a release pins a package to, on Linux, with one of its extras."""
    where = {"sys_platform": "linux", "platform_system": "Linux", "platform_machine": "x86_64", "extra": extra or ""}
    for spec in metadata.requires:
        it = Requirement(spec)
        if canonicalize_name(it.name) != package or not (it.marker is None or it.marker.evaluate(where)):
            continue
        for word in it.specifier:
            if word.operator == "==" and "*" not in word.version:
                return word.version
    return None


def torch_of(draft: Draft) -> str:
    """Return the torch that is asked for, or that the engine pins, or verl does."""
    if draft.torch:
        return Version(draft.torch).public
    extra = draft.engine.name if draft.engine else None
    pin = exact_pin(draft.engine, "torch") if draft.engine else None
    pin = pin or exact_pin(draft.verl, "torch", extra)
    if pin is None:
        raise UsageError("neither the engine nor verl pins torch", hint="say which: --torch VERSION")
    return Version(pin).public


def _pin(draft: Draft, package: str) -> str | None:
    extra = draft.engine.name if draft.engine else None
    pin = exact_pin(draft.engine, package) if draft.engine else None
    return pin or exact_pin(draft.verl, package, extra)


def _pythons(draft: Draft, build: BuildFacts) -> tuple[str, ...]:
    """Return the Pythons that all of them admit, newest first."""
    asked = [it.requires_python for it in (draft.verl, draft.engine) if it and it.requires_python]
    allowed = SpecifierSet(",".join(asked))
    wanted = draft.pythons or PYTHONS
    return tuple(
        it for it in PYTHONS if it in wanted and it in (build.python or PYTHONS) and allowed.contains(f"{it}.0")
    )


def _architectures(draft: Draft, torch: str, facts: Facts) -> tuple[str, ...]:
    """Return the machines that both torch and the engine have CUDA builds for on the default index."""
    found = []
    for arch in ARCHITECTURES:
        build = facts.build("torch", torch, machine=arch)
        files = [it for it in draft.engine_files if f"_{arch}.whl" in it or it.endswith("-any.whl")]
        if build and build.cuda and (files or not draft.engine):
            found.append(arch)
    return tuple(found)


def _id(verl: Metadata, engine: Metadata | None, cuda: str) -> str:
    """Return an id as the others have: verl091-vllm024-cu130."""
    parts = [f"verl{_digits(verl.version)}"]
    if engine:
        parts.append(f"{engine.name}{_digits(engine.version.removesuffix('.0'))}")
    return "-".join([*parts, f"cu{cuda.replace('.', '')}"])


def _digits(version: str) -> str:
    return re.sub(r"[^a-z0-9]", "", version)


def _spelled(engine: str) -> str:
    return {"vllm": "vLLM", "sglang": "SGLang"}.get(engine, engine)
