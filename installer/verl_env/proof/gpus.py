"""The GPUs that a proof may use here, asked of libcuda and NVML."""

from __future__ import annotations

from verl_env.node.host import Host
from verl_env.node.libcuda import list_visible
from verl_env.node.use import ask_use
from verl_env.proof.allocation import Allocation, allocate

_SECONDS = 20.0


def find_gpus() -> Allocation:
    """Return the GPUs that this process may use and that are idle now."""
    host = Host(patience=_SECONDS)
    said = ask_use(host, limit=_SECONDS)
    return allocate(host.environ, list_visible(host), said.get("gpus") or (), said.get("driver"))
