"""GPUs by name: what NVML, schedulers, clouds and people call them. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from verl_env.node.names import plain_name


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFacts:
    """A GPU by name. `datacenter` is true where NVIDIA supports forward compatibility for its kind."""

    name: str
    compute_capability: str
    datacenter: bool
    source: str
    aliases: tuple[str, ...] = ()


def by_name(gpus: tuple[GpuFacts, ...]) -> dict[str, GpuFacts]:
    """Return the GPU of every name and alias, each in its plain form."""
    return {plain_name(text): gpu for gpu in gpus for text in (gpu.name, *gpu.aliases)}
