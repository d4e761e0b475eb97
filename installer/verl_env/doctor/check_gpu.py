"""Who holds GPU memory, and whether GPUs reach each other. Nothing is ended and nothing is reset."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from verl_env.doctor.known import found
from verl_env.node.use import ask_use
from verl_env.output import human_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from verl_env.doctor.situation import Situation
    from verl_env.node.facts import Finding
    from verl_env.node.host import Host

_NOTABLE = 0.02  # of a GPU's memory: below this are contexts of monitors
_UNEXPLAINED = 1_000_000_000
_DEFAULT_MODE = 0
_MODES = {1: "exclusive (thread)", 2: "prohibited", 3: "exclusive (process)"}
_P2P_STATUS = {
    1: "chipset not supported",
    2: "GPU not supported",
    3: "topology not supported",
    4: "disabled",
    5: "not supported",
}
_SECONDS = 1.3


def check_gpu(situation: Situation) -> Iterator[Finding]:
    """Yield what NVML says of memory, modes and links; nothing where no NVML answers (the node's findings say why)."""
    nvml = situation.node.nvml
    if not situation.here or nvml is None or nvml.error or not situation.node.gpus:
        return
    said = ask_use(situation.host, limit=_SECONDS if not situation.deep else 20)
    for gpu in said.get("gpus") or ():
        yield from _memory(gpu, situation.host)
        mode = gpu.get("compute_mode")
        if mode not in (None, _DEFAULT_MODE):
            evidence = f"GPU {gpu['index']}: compute mode {_MODES.get(mode, mode)} (NVML)"
            yield found(
                "gpu-exclusive", evidence, "have the compute mode set to Default (nvidia-smi -c 0, an administrator's)"
            )
    yield from _apart(said, situation)


def _memory(gpu: dict[str, Any], host: Host) -> Iterator[Finding]:
    """Say who holds one GPU's memory."""
    total, used = gpu.get("total"), gpu.get("used")
    if not total or used is None:
        return
    owners = [(owner, _process(owner["pid"], host)) for owner in gpu.get("owners") or ()]
    dead = [(owner, name) for owner, (name, state) in owners if state in ("Z", "X")]
    if dead:
        evidence = ", ".join(
            f"GPU {gpu['index']}: pid {owner['pid']} ({name}) is a zombie and holds {human_bytes(owner['used'])}"
            for owner, name in dead
        )
        yield found("gpu-zombie", evidence, "end its parent process, if it is yours (`ps -o ppid= -p PID`)")
    alive = [
        (owner, name) for owner, (name, state) in owners if state not in ("Z", "X") and owner["used"] > _NOTABLE * total
    ]
    if alive:
        held = ", ".join(f"pid {owner['pid']} ({name}) {human_bytes(owner['used'])}" for owner, name in alive)
        evidence = f"GPU {gpu['index']}: {human_bytes(used)} of {human_bytes(total)} used: {held} (NVML)"
        yield found(
            "gpu-memory-held",
            evidence,
            "end what is yours and left over; leave what is meant to run, and take its memory into account",
        )
    rest = used - sum(owner["used"] for owner, _ in owners)
    told = all(owner["used"] for owner, _ in owners)  # under MIG and WSL NVML does not say how much a process has
    if told and rest > max(_UNEXPLAINED, 2 * _NOTABLE * total):
        held = f"{human_bytes(used)} of {human_bytes(total)} used, {human_bytes(rest)} by no process that is seen here"
        evidence = f"GPU {gpu['index']}: {held} (NVML)"
        yield found(
            "gpu-memory-unexplained",
            evidence,
            "look for leftovers of your own (`ps -u $USER`), and in other containers; else ask an administrator",
        )


def _process(pid: int, host: Host) -> tuple[str, str]:
    """Return a process's name and state letter; a process of another container has neither."""
    status = host.read(f"/proc/{pid}/status") or ""
    fields = dict(line.partition(":")[::2] for line in status.splitlines())
    return fields.get("Name", "not visible here").strip(), fields.get("State", "").strip()[:1]


def _apart(said: dict[str, Any], situation: Situation) -> Iterator[Finding]:
    """Find GPUs that do not reach each other, and what stands between them."""
    gpus = said.get("gpus") or ()
    if any(gpu.get("mig") for gpu in gpus):
        divided = ", ".join(str(gpu["index"]) for gpu in gpus if gpu.get("mig"))
        yield found(
            "mig-nccl",
            f"MIG is enabled on GPU {divided} (NVML)",
            "use one process a MIG device, tensor parallel size 1",
        )
        return
    apart = said.get("apart") or ()
    if apart:
        one, other, status = apart[0]
        reason = _P2P_STATUS.get(status, status)
        evidence = f"{len(apart)} pairs without peer-to-peer, such as GPU {one} and {other}: {reason} (NVML)"
        action = "set NCCL_P2P_DISABLE=1 (and vLLM's --disable-custom-all-reduce), so that nothing relies on it"
        yield found("p2p-missing", evidence, action)
    linked = any(link["up"] for gpu in gpus for link in gpu.get("nvlinks") or ())
    command = situation.host.read("/proc/cmdline") or ""
    groups = situation.host.glob("/sys/class/iommu", "*")
    translated = any(
        (path / "type").is_file() and (path / "type").read_text(encoding="ascii", errors="replace").startswith("DMA")
        for path in situation.host.glob("/sys/kernel/iommu_groups", "*")
    )
    if len(gpus) > 1 and groups and translated and not linked and "iommu=pt" not in command:
        domains = "IOMMU domains of type DMA (/sys/kernel/iommu_groups), no iommu=pt in /proc/cmdline"
        evidence = f"{domains}, {len(gpus)} GPUs without NVLink"
        yield found("iommu-translates", evidence, "have `iommu=pt` set, or set NCCL_P2P_DISABLE=1")
