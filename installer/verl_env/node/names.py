"""What makes a GPU's name another GPU's, whoever wrote it. Pure."""

from __future__ import annotations

import re

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
