"""Who uses the GPUs of this node and how they are linked, asked of NVML in a child process."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verl_env.node.answers import merge_lines

if TYPE_CHECKING:
    from verl_env.node.host import Host


def ask_use(host: Host, *, limit: float) -> dict[str, Any]:
    """Return `gpus[]` in NVML's order, and `apart[]`: pairs without peer-to-peer; empty where no NVML answers."""
    pynvml = pynvml_file()
    if pynvml is None:
        return {}
    child = Path(__file__).with_name("use_child.py")
    done = host.run([sys.executable, "-I", "-S", child, pynvml.parent], limit=limit)
    return merge_lines(done.stdout)


def pynvml_file() -> Path | None:
    """Return where nvidia-ml-py lies, without loading it."""
    spec = importlib.util.find_spec("pynvml")
    return Path(spec.origin) if spec and spec.origin else None
