"""Reading terminal logs: what nvidia-smi printed, and package lines among other output. Pure."""

from __future__ import annotations

import re

from verl_env.capture.listing import Listed, Listing, merged
from verl_env.capture.read_requirements import parse_line

_DRIVER = re.compile(
    r"(?:Driver Version\s*:|<driver_version>|NVRM version:.*?)\s*([0-9]{3,4}\.[0-9]{2,3}(?:\.[0-9]{2})?)"
)
_CSV_ROW = re.compile(
    r"[0-9]+, (?:GPU-[\w-]+, )?(?P<name>[A-Z][\w ./-]+), [0-9]{3,4}\.[0-9.]+, (?:(?P<cc>[0-9]+\.[0-9]), )?.*"
)
_TABLE_ROW = re.compile(r"\|\s+[0-9]+\s+(?P<name>(?:NVIDIA|Tesla|Quadro|GeForce|GRID)[\w ./-]*?)\s{2,}.*")
_NAMED = re.compile(r"(?:Product Name\s*:\s*|<product_name>)([^<\n]+)")
_PACKAGE = re.compile(r"[A-Za-z0-9][\w.-]*(?:==\S+| @ \S+)")
_PYTHON = re.compile(r"^([23]\.[0-9]+\.[0-9]+) (?:\(|\|)", re.MULTILINE)
_TOOLKIT = re.compile(r"Cuda compilation tools, release ([0-9]+\.[0-9]+)")
_GLIBC = re.compile(r"(?:GLIBC|GNU libc)[^\n]*?(2\.[0-9]+)")
_TORCH = re.compile(r"^([0-9]+\.[0-9]+\.[0-9]+\S*) ([0-9]+\.[0-9]+) (?:True|False)\b", re.MULTILINE)


def is_session(text: str) -> bool:
    """Whether a text holds nvidia-smi's output, or commands with theirs."""
    return bool(re.search(r"NVIDIA-SMI|NVSMI LOG|<nvidia_smi_log>|^=====+ \S|^NVRM version", text, re.MULTILINE))


def read_session(text: str) -> Listing:
    """Take the driver, the GPUs, the Python and every line that names a package and its version."""
    packages: list[Listed] = []
    gpus: list[str] = []
    capability = None
    for raw in text.splitlines():
        line = raw.strip()
        if row := _CSV_ROW.fullmatch(line):
            gpus.append(row["name"])
            capability = capability or row["cc"]
        elif row := _TABLE_ROW.fullmatch(line):
            gpus.append(row["name"])
        elif _PACKAGE.fullmatch(line):
            packages += parse_line(line, [])
    driver, torch = _DRIVER.search(text), _TORCH.search(text)
    python, toolkit, glibc = (pattern.search(text) for pattern in (_PYTHON, _TOOLKIT, _GLIBC))
    return Listing(
        kind="terminal log" if packages else "nvidia-smi output",
        packages=tuple(merged(packages)),
        complete=bool(packages),
        driver=driver[1] if driver else None,
        gpus=tuple(gpus or (it.strip() for it in _NAMED.findall(text))),
        capability=capability,
        cuda=torch[2] if torch else None,
        machine="x86_64" if "x86_64" in text else "aarch64" if "aarch64" in text else None,
        python=python[1] if python else None,
        toolkit=toolkit[1] if toolkit else None,
        glibc=glibc[1] if glibc else None,
    )
