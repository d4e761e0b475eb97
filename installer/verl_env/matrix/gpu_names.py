"""GPUs by name: what NVML, schedulers, clouds and people call them. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFacts:
    """A GPU by name. `datacenter` is true where NVIDIA supports forward compatibility for its kind."""

    name: str
    compute_capability: str
    datacenter: bool
    source: str
    aliases: tuple[str, ...] = ()


# What NVML, schedulers and people add to a GPU's name without making it another GPU.
_NOISE = re.compile(
    r"nvidia|tesla|geforce|grid|gpu|graphics|generation|edition|active|workstation|laptop|mobile|super|mega"
    r"|with|max|q|design|sxm\d?|pcie?|dgxs|nvl\d*|hbm\d?e?|\d+gi?b?|\d+[abcq]"
)


def by_name(gpus: tuple[GpuFacts, ...]) -> dict[str, GpuFacts]:
    """Return the GPU of every name and alias, each in its plain form."""
    return {plain_name(text): gpu for gpu in gpus for text in (gpu.name, *gpu.aliases)}


def plain_name(name: str) -> str:
    """Return what makes a name another GPU's: `A100-SXM4-80GB` is an A100, `RTX 3090 Ti` no RTX 3090."""
    text = re.sub(r"[\s_-](mig[\s_-].*|pg\d+-\d+)$", "", name.lower())
    words = [word for word in re.split(r"[^a-z0-9.]+", text) if word]
    kept = [word for word in words if not _NOISE.fullmatch(word)]
    return re.sub(r"(?<=\d)(sxm\d?|pcie|nvl)$", "", "".join(kept))
