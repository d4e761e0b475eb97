"""The proof levels, and the jobs that show those that are shown by an environment's own Python. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from verl_env.proof.runs import Job

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# Each level includes those before it.
LEVELS = ("files", "imports", "behaviour", "linkage", "device", "kernel")
NEED_GPU = ("device", "kernel")
ON_GPU = ("kernel",)

# What makes a row `imported`, `exercised`, `gpu` (matrix/status.py).
STATUS_OF_LEVEL = {
    "imports": "imported",
    "behaviour": "exercised",
    "linkage": "exercised",
    "device": "exercised",
    "kernel": "gpu",
}

_PROGRAM = Path(__file__).with_name("inside") / "run_check.py"
_IMPORT = "import importlib, sys; importlib.import_module(sys.argv[1])"
SETTINGS, PYNVML = "{settings}", "{pynvml}"  # words that stand for the row's verl settings, and for nvidia-ml-py's file


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check: `function` is `module:name` below inside/, `package` the one of the set that it is about."""

    level: str
    name: str
    function: str
    package: str
    words: tuple[str, ...] = ()


def _behaviour(name: str, package: str, *words: str) -> Check:
    return Check(level="behaviour", name=name, function=f"behaviour:{name}", package=package, words=words)


def _kernel(name: str, function: str, package: str, *words: str) -> Check:
    return Check(level="kernel", name=name, function=f"kernel_{function}", package=package, words=words)


# A set without a check's package has nothing to show there.
CHECKS = (
    _behaviour("vllm_tokenizer", "vllm"),
    _behaviour("sglang_tokenizer", "sglang"),
    _behaviour("verl_tokenizer", "verl"),
    _behaviour("tiny_model", "transformers"),
    _behaviour("data_proto", "verl"),
    _behaviour("grpo_advantage", "verl"),
    _behaviour("trainer_config", "verl", SETTINGS),
    _behaviour("parquet_dataset", "verl"),
    _behaviour("ray_actor", "ray"),
    _behaviour("verl_worker_group", "verl"),
    _kernel("torch_matmul", "torch:matmul", "torch"),
    _kernel("torch_attention", "torch:attention", "torch"),
    _kernel("triton_product", "triton:product", "torch"),
    _kernel("nccl_collectives", "nccl:collectives", "torch"),
    _kernel("p2p_copies", "torch:copies", "torch", PYNVML),
    _kernel("flashinfer_decode", "flashinfer:decode", "flashinfer-python"),
    _kernel("flashinfer_prefill", "flashinfer:prefill", "flashinfer-python"),
    _kernel("flash_attn_dense", "flash_attn:dense", "flash-attn"),
    _kernel("flash_attn_packed", "flash_attn:packed", "flash-attn"),
    _kernel("ray_gpu_actor", "ray:actor", "ray"),
    _kernel("verl_fsdp_actor", "verl:fsdp_actor", "verl", SETTINGS),
    _kernel("vllm_generates", "engines:vllm", "vllm", "1"),
    _kernel("vllm_tensor_parallel", "engines:vllm", "vllm", "2"),
    _kernel("sglang_generates", "engines:sglang", "sglang", "1"),
    _kernel("sglang_tensor_parallel", "engines:sglang", "sglang", "2"),
)


def reaches(level: str, least: str) -> bool:
    """Whether a level includes another."""
    return LEVELS.index(level) >= LEVELS.index(least)


def import_jobs(imports: Iterable[str]) -> tuple[Job, ...]:
    """Return the jobs of the `imports` level: each module in a process of its own."""
    return tuple(Job(level="imports", name=name, arguments=("-c", _IMPORT, name)) for name in imports)


def check_jobs(level: str, packages: Mapping[str, str], settings: Iterable[str], pynvml: str = "") -> tuple[Job, ...]:
    """Return the checks of one level that a set of packages has something to show for."""
    device = "cuda" if level in ON_GPU else "none"
    meant = {SETTINGS: tuple(settings), PYNVML: (pynvml,) if pynvml else ()}
    return tuple(
        Job(
            level=level,
            name=it.name,
            arguments=(
                str(_PROGRAM),
                it.function,
                device,
                *(word for words in it.words for word in meant.get(words, (words,))),
            ),
        )
        for it in CHECKS
        if it.level == level and it.package in packages
    )
