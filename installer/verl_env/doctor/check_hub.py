"""Hugging Face: which variable leads where, whether it can be written and has room, what is switched off.

Defaults as in huggingface_hub's documentation, "Environment variables": HF_HOME is $XDG_CACHE_HOME/huggingface or
~/.cache/huggingface, HF_HUB_CACHE is $HF_HOME/hub, HF_XET_CACHE $HF_HOME/xet.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from verl_env.doctor.check_room import write_fault
from verl_env.doctor.known import found
from verl_env.node.folders import nearest_existing
from verl_env.output import human_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from verl_env.doctor.situation import Situation
    from verl_env.node.facts import Finding

_FREE = 20_000_000_000  # a model of 7 billion parameters in bfloat16, and some
_LEGACY = {
    "HUGGINGFACE_HUB_CACHE": "HF_HUB_CACHE",
    "TRANSFORMERS_CACHE": "HF_HOME",
    "PYTORCH_TRANSFORMERS_CACHE": "HF_HOME",
    "PYTORCH_PRETRAINED_BERT_CACHE": "HF_HOME",
    "HUGGING_FACE_HUB_TOKEN": "HF_TOKEN",
    "HF_HUB_ENABLE_HF_TRANSFER": "HF_XET_HIGH_PERFORMANCE",
}
_OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE")
_YES = ("1", "on", "yes", "true")


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where things go, each with the variable or default that says so."""

    home: Path
    hub: Path
    xet: Path
    token: Path
    sources: Mapping[str, str]


def places_of(environ: Mapping[str, str]) -> Places:
    """Work out the folders as huggingface_hub does."""
    user = Path(environ.get("HOME") or "/")
    base = Path(environ.get("XDG_CACHE_HOME") or user / ".cache")
    home = Path(environ.get("HF_HOME") or base / "huggingface").expanduser()
    hub_variable = next((name for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE") if environ.get(name)), "")
    return Places(
        home=home,
        hub=Path(environ[hub_variable]).expanduser() if hub_variable else home / "hub",
        xet=Path(environ.get("HF_XET_CACHE") or home / "xet").expanduser(),
        token=Path(environ.get("HF_TOKEN_PATH") or home / "token").expanduser(),
        sources={
            "home": "HF_HOME" if environ.get("HF_HOME") else "the default",
            "hub": hub_variable or "$HF_HOME/hub",
            "xet": "HF_XET_CACHE" if environ.get("HF_XET_CACHE") else "$HF_HOME/xet",
        },
    )


def offline_flags(environ: Mapping[str, str]) -> list[str]:
    """Return the flags that switch downloads off, as they are set."""
    return [f"{name}={environ[name]}" for name in _OFFLINE if environ.get(name, "").lower() in _YES]


def has_token(environ: Mapping[str, str], places: Places) -> bool:
    """Whether a token is there; its value is never read further."""
    if environ.get("HF_TOKEN") or environ.get("HUGGING_FACE_HUB_TOKEN"):
        return True
    try:
        return places.token.stat().st_size > 0
    except OSError:
        return False


def check_hub(situation: Situation) -> Iterator[Finding]:
    """Yield what is wrong with the cache in use."""
    environ = situation.environ
    places = places_of(environ)
    faulty = []
    for role, folder in (("home", places.home), ("hub", places.hub), ("xet", places.xet)):
        fault = _write_fault(folder, sync=situation.deep)
        if fault and (role == "home" or not str(folder).startswith(f"{places.home}/")):
            faulty.append(folder)
            evidence = f"{folder} ({places.sources[role]}): {fault}"
            yield found(
                "hf-home-not-writable", evidence, "set HF_HOME to a folder of yours with room", severity="error"
            )
    if not faulty:
        yield from _room(places)
    yield from _twice(environ, places)
    for old, new in _LEGACY.items():
        if environ.get(old):
            value = "…" if "TOKEN" in old else environ[old]
            yield found("hf-legacy-variable", f"{old}=`{value}`", f"set {new} in its place, and unset {old}")
    flags = offline_flags(environ)
    if flags:
        evidence = f"{', '.join(flags)}; the cache is {places.hub}"
        yield found(
            "hf-offline",
            evidence,
            "unset it to allow downloads; see what is there with `verl-env doctor --hf-model ID`",
        )


def _write_fault(folder: Path, *, sync: bool) -> str:
    """Try to write into the folder, or see whether it could be made; nothing of it stays."""
    there = nearest_existing(folder)
    if not there.is_dir():
        return f"{there} is not a folder"
    fault = write_fault(there, sync=sync)
    return fault if not fault or there == folder.absolute() else f"not there, and {there} cannot be written: {fault}"


def _room(places: Places) -> Iterator[Finding]:
    """Find a cache whose file system is nearly full."""
    there = nearest_existing(places.hub)
    room = os.statvfs(there)
    free = room.f_bavail * room.f_frsize
    if free < _FREE:
        evidence = f"{places.hub}: {human_bytes(free)} free (statvfs {there})"
        yield found(
            "hf-full", evidence, "make room (`hf cache prune` lists what may go), or set HF_HOME to a folder with room"
        )


def _twice(environ: Mapping[str, str], places: Places) -> Iterator[Finding]:
    """Find models in the default cache while a variable leads elsewhere."""
    user = Path(environ.get("HOME") or "/")
    default = Path(environ.get("XDG_CACHE_HOME") or user / ".cache") / "huggingface" / "hub"
    if os.path.realpath(default) == os.path.realpath(places.hub):
        return
    counts = {folder: _models(folder) for folder in (default, places.hub)}
    if counts[default]:
        evidence = (
            f"{default} has {counts[default]} models, {places.hub} ({places.sources['hub']}) {counts[places.hub]}"
        )
        yield found("hf-two-caches", evidence, "move the models into one, or let HF_HOME name the one that has them")


def _models(folder: Path) -> int:
    """Count the models of a cache."""
    try:
        return sum(1 for it in folder.iterdir() if it.name.startswith("models--"))
    except OSError:
        return 0
