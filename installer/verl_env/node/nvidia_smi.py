"""nvidia-smi, asked when NVML does not answer us itself."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from verl_env.node.answers import SmiAnswer
from verl_env.node.facts import Gpu

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from verl_env.node.host import Host
    from verl_env.process import Completed

FIELDS: tuple[str, ...] = (
    "index",
    "uuid",
    "name",
    "driver_version",
    "compute_cap",
    "memory.total",
    "memory.free",
    "mig.mode.current",
    "pci.bus_id",
)
# A driver before 510 does not know compute_cap, one before 450 no MIG either.
_OLD_FIELDS: tuple[str, ...] = tuple(field for field in FIELDS if field not in {"compute_cap", "mig.mode.current"})
_UNKNOWN = {"", "n/a", "[n/a]", "[not supported]", "[unknown error]", "[gpu requires reset]", "err!"}
_CUDA = re.compile(r"CUDA Version\s*:\s*(\d+\.\d+)")
_ELSEWHERE = ("/usr/local/nvidia/bin/nvidia-smi", "/usr/lib/wsl/lib/nvidia-smi", "/opt/bin/nvidia-smi")


def parse_gpus(text: str, fields: Sequence[str] = FIELDS) -> tuple[str | None, tuple[Gpu, ...]]:
    """Return the driver version and the GPUs of `--query-gpu=… --format=csv,noheader,nounits`."""
    driver: str | None = None
    gpus = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) != len(fields):
            continue
        said = {field: None if cell.lower() in _UNKNOWN else cell for field, cell in zip(fields, cells, strict=True)}
        driver = driver or said["driver_version"]
        mig = said.get("mig.mode.current")
        gpus.append(
            Gpu(
                name=said["name"] or "unknown",
                source="nvidia-smi",
                index=_whole(said["index"]),
                compute_capability=said.get("compute_cap"),
                memory_total_mib=_whole(said["memory.total"]),
                memory_free_mib=_whole(said["memory.free"]),
                mig=mig.lower() if mig else None,
                uuid=said["uuid"],
                pci_bus_id=said["pci.bus_id"],
            )
        )
    return driver, tuple(gpus)


def parse_cuda_version(text: str) -> str | None:
    """Return the header's CUDA version; `N/A` and `ERR!` stand there when libcuda does not load."""
    found = _CUDA.search(text)
    return found[1] if found else None


def ask_nvidia_smi(host: Host) -> SmiAnswer | None:
    """Return what nvidia-smi says, or None when there is none."""
    program = find_nvidia_smi(host)
    if program is None:
        return None
    done, fields = _query(host, program, FIELDS), FIELDS
    if "not a valid field" in done.stdout + done.stderr:
        done, fields = _query(host, program, _OLD_FIELDS), _OLD_FIELDS
    if done.timed_out:
        said = f"nvidia-smi did not answer within {done.seconds:.2g} s and was ended"
        return SmiAnswer(path=str(program), error=said, late=True)
    if done.returncode != 0:
        return SmiAnswer(path=str(program), error=_words(done))
    driver, gpus = parse_gpus(done.stdout, fields)
    cuda = parse_cuda_version(host.run([program]).stdout)
    return SmiAnswer(path=str(program), driver_version=driver, cuda_version=cuda, gpus=gpus)


def find_nvidia_smi(host: Host) -> Path | None:
    """Return nvidia-smi from PATH, or from where containers and WSL put it without naming it there."""
    found = host.which("nvidia-smi")
    return found or next((path for path in map(host.path, _ELSEWHERE) if path.is_file()), None)


def _query(host: Host, program: Path, fields: Sequence[str]) -> Completed:
    """Run one query."""
    return host.run([program, f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"])


def _words(done: Completed) -> str:
    """Return what a failed nvidia-smi said, on one line; it says it on stdout."""
    said = " ".join((done.stdout.strip() or done.stderr.strip()).split())
    return said or f"nvidia-smi ended with status {done.returncode} and no word"


def _whole(text: str | None) -> int | None:
    """Return a whole number, or None."""
    return int(text) if text and text.isdigit() else None
