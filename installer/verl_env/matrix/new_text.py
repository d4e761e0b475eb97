"""A new row's TOML. Pure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from verl_env.matrix.new import exact_pin, extras_of, torch_of
from verl_env.matrix.pins import glibc_floor

if TYPE_CHECKING:
    from verl_env.matrix.facts import BuildFacts
    from verl_env.matrix.new import Draft, Filled

CUDA_WITH_NVCC = 13  # from this major on nvcc is among the wheels
NVCC = ("nvidia-cuda-nvcc", "nvidia-cuda-crt", "nvidia-nvvm", "nvidia-cuda-cccl")
LOWEST_GLIBC = "2.31"  # what packages beneath the engines ask for (llguidance), whatever the engine's own tag


def render_row(draft: Draft, filled: Filled) -> str:
    """Write a row that was filled from metadata, with what comes next on top of it."""
    lines = [
        "# Filled in by `verl-env matrix new` from package metadata. What comes next:",
        f"#   verl-env matrix resolve {filled.id}    makes its pins; what it says tells which constraints are missing",
        "#   verl-env matrix check",
        f"#   verl-env matrix prove {filled.id}    installs it from the pins, runs the proofs, writes the evidence",
        "# Each constraint and override says why it is there; delete this comment when the row is proved.",
        f"title = {json.dumps(filled.title, ensure_ascii=False)}",
        f"cuda = {json.dumps(filled.cuda)}",
        f"python = {json.dumps(list(filled.pythons))}",
        f"arch = {json.dumps(list(filled.arch))}",
        "",
        "[set]",
        *(f"{name} = {json.dumps(version)}" for name, version in filled.set.items()),
        "",
        *_resolve_lines(draft, filled.cuda, filled.build),
        "",
        "[smoke]",
        f"imports = {json.dumps(_imports(filled.set))}",
        "",
        "[attention]",
        'path = "sdpa"',
        "settings = [",
        '    "+actor_rollout_ref.model.override_config.attn_implementation=sdpa",',
        '    "actor_rollout_ref.model.use_remove_padding=False",',
        "]",
    ]
    for it in (draft.verl, *([draft.engine] if draft.engine else [])):
        lines += ["", "[[source]]", f'fact = "what {it.name} {it.version} requires, and its Pythons"']
        lines.append(f"where = {json.dumps(f'{it.file}, METADATA')}")
    return "\n".join(lines) + "\n"


def _resolve_lines(draft: Draft, cuda: str, build: BuildFacts) -> list[str]:
    """Write [resolve]: the requirements, and the constraints and overrides that metadata tells of."""
    verl, engine = draft.verl, draft.engine
    extra = engine.name if engine and engine.name in extras_of(verl) else None
    requirements = [f"verl[{extra}]=={verl.version}" if extra else f"verl=={verl.version}"]
    overrides = []
    if engine:
        pinned = exact_pin(verl, engine.name, extra)
        if pinned is None or Version(pinned) != Version(engine.version):
            requirements.append(f"{engine.name}=={engine.version}")
        if pinned is not None and Version(pinned) != Version(engine.version):
            why = f"verl {verl.version} pins {engine.name} {pinned}; this row is for another release"
            overrides.append((f"{engine.name}=={engine.version}", why))
    else:
        requirements.append(f"torch=={Version(torch_of(draft)).public}")
    if engine and Version(cuda).major >= CUDA_WITH_NVCC:
        why = "its -cu13 companion has all of its files in versions of its own; whichever is installed last would win"
        overrides.append(("nvidia-cutlass-dsl-libs-base; sys_platform == 'never'", why))
    constraints = []
    if Version(cuda).major >= CUDA_WITH_NVCC:
        constraints = [(f"{name}=={cuda}.*", "nvcc and its headers are of the runtime's minor") for name in NVCC]
    lines = ["[resolve]", f"requirements = {json.dumps(requirements)}", f"glibc = {json.dumps(_glibc(draft, build))}"]
    for key, items in (("constraints", constraints), ("overrides", overrides)):
        if items:
            lines += [f"{key} = ["]
            lines += [f"    {{ spec = {json.dumps(spec)}, why = {json.dumps(why)} }}," for spec, why in items]
            lines += ["]"]
    if any(canonicalize_name(Requirement(spec).name) == "hydra-core" for spec in verl.requires):
        lines += [
            "sdists = [",
            '    { name = "antlr4-python3-runtime", why = "omegaconf wants 4.9.*, published as an sdist only" },',
            "]",
            'build_requirements = ["setuptools==80.10.2"]',
        ]
    return lines


def _glibc(draft: Draft, build: BuildFacts) -> str:
    """Return the manylinux level to resolve for: the highest that engine, torch or anything common asks for."""
    files = [it for it in draft.engine_files if it.endswith("_x86_64.whl")]
    floors = [glibc_floor((it,)) for it in files] + [glibc_floor((f"torch-0-cp312-cp312-{build.tag}.whl",))]
    return max([LOWEST_GLIBC, *(it for it in floors if it)], key=Version)


def _imports(row_set: dict[str, str]) -> list[str]:
    """Return the modules whose import shows that the set holds together."""
    engines = [name for name in ("vllm", "sglang") if name in row_set]
    flashinfer = ["flashinfer"] if "flashinfer-python" in row_set else []
    common = ["ray", "transformers", "tensordict", "verl", "verl.protocol", "verl.trainer.main_ppo"]
    return ["torch", *engines, *flashinfer, *common]
