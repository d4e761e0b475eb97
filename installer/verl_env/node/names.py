"""GPUs by name: what makes one another GPU, whoever wrote it, and what several are called. Pure."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

NO_DEVICE = "none"

# What NVML, schedulers and people add to a GPU's name without making it another GPU.
_NOISE = re.compile(
    r"nvidia|tesla|geforce|grid|gpu|graphics|generation|edition|active|workstation|laptop|mobile|super|mega"
    r"|with|max|q|design|sxm\d?|pcie?|dgxs|nvl\d*|hbm\d?e?|\d+gi?b?|\d+[abcq]"
)


def plain_name(name: str) -> str:
    """Return what makes a name another GPU's: `A100-SXM4-80GB` is an A100, `RTX 3090 Ti` no RTX 3090."""
    text = re.sub(r"[\s_-](mig[\s_-].*|pg\d+-\d+)$", "", name.lower())
    words = [word for word in re.split(r"[^a-z0-9.]+", text) if word]
    kept = [word for word in words if not _NOISE.fullmatch(word)]
    return re.sub(r"(?<=\d)(sxm\d?|pcie|nvl)$", "", "".join(kept))


def device_name(gpus: Sequence[str], driver: str | None) -> str:
    """Name the GPUs of a node as receipts and evidence do: `2x NVIDIA H200, driver 580.159.04`, or `none`."""
    if not gpus:
        return NO_DEVICE
    counts = Counter(gpus)
    kinds = " + ".join(name if count == 1 else f"{count}x {name}" for name, count in counts.items())
    return f"{kinds}, driver {driver or 'unknown'}"
