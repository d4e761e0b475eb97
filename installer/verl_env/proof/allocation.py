"""Which GPUs a proof may use: those that CUDA shows, that the scheduler gave, and that nobody else is using. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from verl_env.node.names import device_name
from verl_env.output import human_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_IDLE_BYTES = 1_500_000_000  # a driver keeps some 600 MB of an H200 to itself
_IDLE_SHARE = 0.02
_SLURM_GIVEN = ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS")
VISIBLE = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One GPU, or MIG device, as CUDA shows it; `token` names it in CUDA_VISIBLE_DEVICES, `busy` says who has it."""

    token: str
    name: str
    compute_capability: str
    mig: bool = False
    busy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """The GPUs of a proof: `every` that may be used, and `devices`, those of them that are idle.

    `why_none` says why there is not one to use; `notes` name those that are left alone.
    """

    devices: tuple[Device, ...] = ()
    every: tuple[Device, ...] = ()
    driver: str | None = None
    why_none: str = ""
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What the GPUs are called in receipts and evidence."""
        return device_name([it.name for it in self.devices], self.driver)

    @property
    def variables(self) -> dict[str, str]:
        """What a program is given so that it uses these GPUs and no others."""
        return {VISIBLE: ",".join(it.token for it in self.devices)}


def allocate(
    environ: Mapping[str, str],
    shown: Sequence[Mapping[str, Any]],
    used: Iterable[Mapping[str, Any]],
    driver: str | None = None,
) -> Allocation:
    """Choose among the devices that CUDA shows, given NVML's account of who uses them.

    Of MIG devices one is taken, never two: neither NCCL nor peer-to-peer copies work across them.
    """
    if environ.get("SLURM_JOB_ID") and not environ.get(VISIBLE) and not _slurm_gave(environ):
        return Allocation(why_none="Slurm gave this job no GPU")
    if not shown:
        hidden = VISIBLE in environ and f" ({VISIBLE} is `{environ[VISIBLE]}`)"
        return Allocation(why_none=f"CUDA shows no GPU{hidden or ''}")
    by_uuid = {_digits(it.get("uuid")): it for it in used if it.get("uuid")}
    tokens = _tokens(environ)
    every = [
        _device(device, tokens[number] if number < len(tokens) else str(device["index"]), by_uuid)
        for number, device in enumerate(shown)
    ]
    mine = [it for it in every if environ.get(VISIBLE) or not _slurm_gave(environ) or it.token in _slurm_gave(environ)]
    notes = [] if by_uuid else ["NVML does not answer: whether somebody else uses the GPUs is not known"]
    notes += [f"GPU {it.token} ({it.name}) is left alone: {it.busy}" for it in mine if it.busy]
    notes += [f"GPU {it.token} is left alone: Slurm gave this job others" for it in every if it not in mine]
    free = [it for it in mine if not it.busy]
    if any(it.mig for it in free) and len(free) > 1:
        notes.append(f"one MIG device is used, {free[0].token}: nothing goes from one to another")
        free = free[:1]
    why = "" if free else f"every GPU is in use: {'; '.join(it.busy for it in mine)}"
    return Allocation(devices=tuple(free), every=tuple(mine), driver=driver, why_none=why, notes=tuple(notes))


def _slurm_gave(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the GPUs that Slurm names for this step or job."""
    given = next((environ[name] for name in _SLURM_GIVEN if environ.get(name)), "")
    return tuple(part.strip() for part in given.split(",") if part.strip())


def _tokens(environ: Mapping[str, str]) -> list[str]:
    """Return what CUDA_VISIBLE_DEVICES calls the devices, in CUDA's order: it numbers them as they are named there."""
    return [part.strip() for part in environ.get(VISIBLE, "").split(",") if part.strip()]


def _digits(uuid: Any) -> str:
    """Return a UUID's hexadecimal digits: NVML writes `GPU-` and dashes, CUDA bytes."""
    return str(uuid or "").removeprefix("GPU-").removeprefix("MIG-").replace("-", "").lower()


def _device(shown: Mapping[str, Any], token: str, by_uuid: Mapping[str, Mapping[str, Any]]) -> Device:
    """Join what CUDA and NVML say of a device; one that NVML does not know by its UUID is a MIG device, or hidden."""
    used = by_uuid.get(_digits(shown.get("uuid")))
    major, minor = shown["capability"]
    return Device(
        token=token,
        name=str(shown["name"]),
        compute_capability=f"{major}.{minor}",
        mig=bool(used.get("mig")) if used else "MIG" in str(shown["name"]) or token.startswith("MIG-"),
        busy=_busy(used) if used else "",
    )


def _busy(used: Mapping[str, Any]) -> str:
    """Say who uses a GPU: a process that computes, or memory that somebody holds who is not seen from here."""
    owners = [it for it in used.get("owners") or () if not it.get("graphics")]
    if owners:
        held = ", ".join(f"pid {it['pid']} ({human_bytes(it['used'])})" for it in owners)
        return f"used by {held}"
    total, taken = used.get("total"), used.get("used")
    if total and taken is not None and taken > max(_IDLE_BYTES, _IDLE_SHARE * total):
        return f"{human_bytes(taken)} of {human_bytes(total)} are taken, by a process that is not seen from here"
    return ""
