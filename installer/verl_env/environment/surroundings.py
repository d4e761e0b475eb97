"""What of this node decides an environment's exports and its place. Reads; writes nothing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from verl_env import paths
from verl_env.environment.exports import Surroundings
from verl_env.node.folders import probe_folders
from verl_env.node.host import Host
from verl_env.node.toolkits import find_toolkits

if TYPE_CHECKING:
    from verl_env.node.facts import Folder, Node, Toolkit

# A folder with less room than this is too small for the weights of a model of 7 billion parameters and its copies.
_ROOM_FOR_MODELS = 50_000_000_000


def look_around(node: Node, *, measured: bool) -> Surroundings:
    """Return what decides the exports here; toolkits are looked for when the node was only described."""
    toolkits: tuple[Toolkit, ...] = node.toolkits if measured else find_toolkits(Host())
    home, why, token = _hugging_face()
    return Surroundings(
        toolkits=toolkits, hugging_face=(home, why), token_file=token, library_folder=_library_folder(node)
    )


def _hugging_face() -> tuple[str, str, str | None]:
    """Return the Hugging Face folder, why it was taken, and where a token already is if it is elsewhere.

    HF_HOME defaults to $XDG_CACHE_HOME/huggingface (huggingface_hub docs, "Environment variables").
    """
    if chosen := os.environ.get("HF_HOME"):
        return chosen, "it was set", None
    cache = Path(os.environ.get("XDG_CACHE_HOME") or paths.user_home() / ".cache") / "huggingface"
    if (cache / "hub").is_dir() and any((cache / "hub").iterdir()):
        return str(cache), "the default cache, which has content", None
    ours = paths.home() / "huggingface"
    here, there = probe_folders(Host(), {"default": cache, "ours": ours})
    if not here.writable or (_free(here) < _ROOM_FOR_MODELS and _free(there) > _free(here)):
        token = cache / "token"
        return (
            str(ours),
            "the default cache has no room or cannot be written",
            str(token) if token.is_file() else None,
        )
    return str(cache), "the default cache", None


def _free(folder: Folder) -> int:
    return folder.free_bytes or 0


def _library_folder(node: Node) -> str | None:
    """Return the folder of libcuda when only this process's LD_LIBRARY_PATH leads to it."""
    if node.libcuda is None:
        return None
    folder = str(Path(node.libcuda.path).parent)
    ambient = [os.path.realpath(part) for part in os.environ.get("LD_LIBRARY_PATH", "").split(":") if part]
    return folder if os.path.realpath(folder) in ambient else None
