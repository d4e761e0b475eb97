"""Where programs keep models and compiled kernels: the place that is in use, or one with room.

A small home (a quota, a container's layer) is filled by one model or one day's kernels. A place that is set, or that
holds models already, is kept; the others move off a place that has no room, if ours has more.
"""

from __future__ import annotations

import getpass
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from verl_env.environment.exports import DEFAULT, Export

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from verl_env.node.facts import Folder

    _Probe = Callable[[Mapping[str, Path]], tuple[Folder, ...]]

# Too small for the weights of a model of 7 billion parameters and its copies.
_ROOM_FOR_MODELS = 50_000_000_000
# Kernels that flashinfer, Triton, vLLM and inductor compile for one model, and what they keep of earlier ones.
_ROOM_FOR_KERNELS = 10_000_000_000
_KEPT, _MOVED = "it was set", "the default place has no room or cannot be written"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cache:
    """One cache: its variable, its default place, what is written there, and our place for it."""

    variable: str
    default: Path
    writes: Path
    ours: Path
    room: int = _ROOM_FOR_KERNELS


def find_caches(environ: Mapping[str, str], user_home: Path, home: Path, probe: _Probe) -> tuple[Export, ...]:
    """Return the exports of caches: HF_HOME always, others where they are set or have to move.

    HF_HOME defaults to $XDG_CACHE_HOME/huggingface (huggingface_hub docs, "Environment variables").
    """
    cache = Path(environ.get("XDG_CACHE_HOME") or user_home / ".cache")
    hugging_face = _models(environ, cache / "huggingface", home / "huggingface", probe)
    others = _caches(Path(hugging_face[0].value), user_home, cache, home)
    named = {it.name for it in hugging_face}
    moved = (_kernels(it, environ, probe) for it in others if it.variable not in named)
    return (*hugging_face, *(it for it in moved if it))


def _models(environ: Mapping[str, str], default: Path, ours: Path, probe: _Probe) -> list[Export]:
    """Return HF_HOME, and the token's place when a token is elsewhere."""
    if chosen := environ.get("HF_HOME"):
        return [_export("HF_HOME", chosen, _KEPT)]
    hub = default / "hub"
    if hub.is_dir() and any(hub.iterdir()):
        return [_export("HF_HOME", str(default), "the default cache, which has content")]
    if not _lacks_room(default, ours, _ROOM_FOR_MODELS, probe):
        return [_export("HF_HOME", str(default), "the default cache")]
    moved = [_export("HF_HOME", str(ours), _MOVED)]
    if "HF_XET_CACHE" not in environ:  # follows it; said all the same, for a shell where HF_HOME is another
        moved.append(_export("HF_XET_CACHE", str(ours / "xet"), _MOVED))
    if (default / "token").is_file():
        moved.append(_export("HF_TOKEN_PATH", str(default / "token"), "where the token already is"))
    return moved


def _caches(hugging_face: Path, user_home: Path, cache: Path, home: Path) -> tuple[_Cache, ...]:
    """Return the caches of kernels and of downloads' parts, with the defaults of their own sources."""
    temporary = Path(tempfile.gettempdir())
    plain = (
        ("HF_XET_CACHE", hugging_face / "xet", home / "huggingface" / "xet"),
        ("TRITON_CACHE_DIR", user_home / ".triton" / "cache", home / "caches" / "triton"),
        ("VLLM_CACHE_ROOT", cache / "vllm", home / "caches" / "vllm"),
        ("TORCHINDUCTOR_CACHE_DIR", temporary / f"torchinductor_{_user()}", home / "caches" / "torchinductor"),
    )
    # flashinfer keeps its kernels in .cache/flashinfer below this one, whatever XDG says.
    flashinfer = _Cache(
        variable="FLASHINFER_WORKSPACE_BASE",
        default=user_home,
        writes=user_home / ".cache" / "flashinfer",
        ours=home / "caches" / "flashinfer",
    )
    return (flashinfer, *(_Cache(variable=name, default=it, writes=it, ours=ours) for name, it, ours in plain))


def _kernels(it: _Cache, environ: Mapping[str, str], probe: _Probe) -> Export | None:
    """Return the export of one cache, or None where its default will do."""
    if chosen := environ.get(it.variable):
        return _export(it.variable, chosen, _KEPT)
    if not _lacks_room(it.writes, it.ours, it.room, probe):
        return None
    return _export(it.variable, str(it.ours), _MOVED)


def _lacks_room(default: Path, ours: Path, wanted: int, probe: _Probe) -> bool:
    """Whether the default place cannot be written, or has too little room where ours has more."""
    here, there = probe({"default": default, "ours": ours})
    free, other = here.free_bytes or 0, there.free_bytes or 0
    return not here.writable or (free < wanted and other > free)


def _export(name: str, value: str, why: str) -> Export:
    return Export(name=name, value=value, how=DEFAULT, why=why)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container that runs with a number nobody has
        return str(os.getuid())
