"""One model: is it here and whole, does it want a token, does it bring code of its own."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verl_env.doctor.check_hub import Places, has_token, offline_flags, places_of
from verl_env.doctor.known import found
from verl_env.output import human_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from verl_env.doctor.situation import Situation
    from verl_env.node.facts import Finding

_INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
_SINGLE = ("model.safetensors", "pytorch_model.bin", "consolidated.safetensors")
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "tekken.json", "tokenizer_config.json")
_HEADER_MOST = 100_000_000  # safetensors' own limit of its header
_SHOWN = 5


def check_model(situation: Situation, model: str) -> Iterator[Finding]:
    """Yield what would stop this model from loading: a folder, or an id of the hub."""
    path = Path(model).expanduser()
    if path.is_dir():
        yield from judge_folder(path, model)
        return
    if model.startswith(("/", "./", "~")) or model.count("/") > 1:
        yield found(
            "hf-model-missing",
            f"no folder at `{path}`",
            "correct the path, or name a model as ORG/NAME",
            severity="error",
        )
        return
    places = places_of(situation.environ)
    snapshot = find_snapshot(places.hub, model)
    if snapshot is not None:
        yield from judge_folder(snapshot, model)
        yield from _unfinished(places.hub, model)
        return
    yield from _absent(situation, places, model)


def find_snapshot(hub: Path, model: str) -> Path | None:
    """Return the cached snapshot that `main` names, or the only one there is."""
    folder = hub / f"models--{model.replace('/', '--')}"
    try:
        commit = (folder / "refs" / "main").read_text(encoding="ascii").strip()
        if (folder / "snapshots" / commit).is_dir():
            return folder / "snapshots" / commit
    except (OSError, UnicodeDecodeError):
        pass
    try:
        found_ones = sorted(it for it in (folder / "snapshots").iterdir() if it.is_dir())
    except OSError:
        return None
    return found_ones[0] if len(found_ones) == 1 else None


def judge_folder(folder: Path, model: str) -> Iterator[Finding]:
    """Look at a model's files: config, tokenizer, weights whole against their index, code of its own."""
    config = _json(folder / "config.json")
    faults = [] if config is not None else ["config.json is missing or no JSON"]
    if not any((folder / name).is_file() for name in _TOKENIZERS):
        faults.append("no tokenizer")
    faults += _weights(folder)
    if faults:
        shown = "; ".join(faults[:_SHOWN]) + (f" and {len(faults) - _SHOWN} more" if len(faults) > _SHOWN else "")
        yield found(
            "hf-model-incomplete", f"{folder}: {shown}", f"fetch it again: `hf download {model}`", severity="error"
        )
    if config and config.get("auto_map"):
        code = ", ".join(sorted(config["auto_map"])) if isinstance(config["auto_map"], dict) else "auto_map"
        evidence = f"{folder}/config.json: auto_map has {code}"
        yield found(
            "hf-model-code",
            evidence,
            "read that code, then set trust_remote_code=True (verl: actor_rollout_ref.model.trust_remote_code)",
        )


def _weights(folder: Path) -> list[str]:
    """Return what is missing or cut off among the weights."""
    for name in _INDEXES:
        index = _json(folder / name)
        if index is None:
            continue
        shards = sorted(set(map(str, (index.get("weight_map") or {}).values())))
        return [fault for shard in shards if (fault := file_fault(folder / shard))] or (
            [] if shards else [f"{name} lists no file"]
        )
    single = [folder / name for name in _SINGLE if os.path.lexists(folder / name)]
    single = single or sorted(folder.glob("*.safetensors"))[:1]
    return [fault for path in single if (fault := file_fault(path))] if single else ["no weights"]


def file_fault(path: Path) -> str:
    """Return what is wrong with one file of weights: a safetensors file states its own length."""
    try:
        size = path.stat().st_size
        if not size:
            return f"{path.name} is empty"
        if path.suffix != ".safetensors":
            return ""
        with path.open("rb") as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
            if length > min(size, _HEADER_MOST):
                return f"{path.name} is no safetensors file, or is cut off"
            header = json.loads(stream.read(length))
    except FileNotFoundError:
        return f"{path.name} is missing"
    except (OSError, ValueError, struct.error) as err:
        return f"{path.name} cannot be read: {err}"
    ends = [it["data_offsets"][1] for it in header.values() if isinstance(it, dict) and "data_offsets" in it]
    wanted = 8 + length + max(ends, default=0)
    return "" if wanted == size else f"{path.name} has {size} bytes, and says {wanted}"


def _unfinished(hub: Path, model: str) -> Iterator[Finding]:
    """Find downloads that broke off."""
    blobs = hub / f"models--{model.replace('/', '--')}" / "blobs"
    try:
        parts = [it for it in blobs.iterdir() if it.name.endswith(".incomplete")]
    except OSError:
        return
    if parts:
        size = human_bytes(sum(it.stat().st_size for it in parts))
        yield found(
            "hf-model-incomplete",
            f"{blobs}: {len(parts)} unfinished downloads, {size}",
            f"`hf download {model}` goes on with them",
        )


def _absent(situation: Situation, places: Places, model: str) -> Iterator[Finding]:
    """Say whether a model that is not cached could be fetched."""
    where = f"{model} is not in {places.hub}"
    flags = offline_flags(situation.environ)
    if flags:
        action = f"fetch it where downloads are allowed: `hf download {model}`, and copy the cache here"
        yield found("hf-model-missing", f"{where}; {', '.join(flags)}", action, severity="error")
        return
    endpoint = (situation.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")
    status = _status(f"{endpoint}/api/models/{model}", situation, places)
    token = "a token is here" if has_token(situation.environ, places) else "no token is here"
    if status is None:
        yield found(
            "hf-unreachable",
            f"{endpoint} does not answer within {_patience(situation):g} s; {where}",
            "check the network and proxy (HTTPS_PROXY), or set HF_ENDPOINT to a mirror; --deep waits longer",
            severity="error",
        )
    elif status in (401, 403):
        action = "ask for access on the model's page, and log in: `hf auth login`"
        yield found("hf-no-token", f"{endpoint} answers {status} for {model}; {token}", action, severity="error")
    elif status == 404:  # noqa: PLR2004 - HTTP
        yield found("hf-model-missing", f"{endpoint} knows no {model} ({token})", "correct the name", severity="error")
    else:
        yield found("hf-model-missing", f"{where}; {endpoint} has it", f"`hf download {model}` fetches it beforehand")


def _status(url: str, situation: Situation, places: Places) -> int | None:
    """Ask the hub about the model, with the token when there is one; None when it does not answer."""
    from verl_env.fetch import status_code

    token = situation.environ.get("HF_TOKEN") or _token(places)
    return status_code(url, bearer=token, seconds=_patience(situation))


def _patience(situation: Situation) -> float:
    """Return how many seconds the hub has."""
    return 5.0 if situation.deep else 0.7


def _token(places: Places) -> str:
    """Read the stored token, for the request alone."""
    try:
        return places.token.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _json(path: Path) -> dict[str, Any] | None:
    """Return a JSON object, or None when there is none."""
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return plain if isinstance(plain, dict) else None
