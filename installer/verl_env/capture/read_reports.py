"""Reading environment reports that people paste: torch's and vLLM's collect_env, SGLang's check_env. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from verl_env.capture.listing import Listed, Listing, clean_version, merged, public_of, without_masked
from verl_env.capture.read_conda import parse_conda_row
from verl_env.capture.read_requirements import parse_line

if TYPE_CHECKING:
    from collections.abc import Iterator

_FIELD = re.compile(r"(?P<key>[A-Za-z][\w ,/.-]*?)\s*:\s*(?P<value>.*)")
_PIP_LINE = re.compile(r"\[pip3?\]\s+(\S+==\S+)")
_CONDA_LINE = re.compile(r"\[conda\]\s+(.+)")
_GPU_LINE = re.compile(r"GPU (?P<numbers>[0-9]+(?:,\s*[0-9]+)*): (?P<name>.+?)(?: \(UUID: .*)?")
_CAPABILITY = re.compile(r"GPU [0-9, ]+ Compute Capability")
_VERSION = re.compile(r"[0-9][\w.!+-]*")
_RELEASE = re.compile(r"V?([0-9]+\.[0-9]+(?:\.[0-9]+)?)")
_DRIVER = re.compile(r"[0-9]{3,4}\.[0-9]{2,3}(?:\.[0-9]{2})?")
_GLIBC = re.compile(r"glibc-?\s*(2\.[0-9]+)")
_ABSENT = ("n/a", "could not collect", "module not found", "none", "no cuda", "not set", "")
# SGLang's check_env prints modules where pip has other names.
_MODULES = {"pil": "pillow", "zmq": "pyzmq", "multipart": "python-multipart", "pytorch": "torch"}
_SGLANG_FACTS = frozenset({
    "python", "cuda available", "cuda_home", "nvcc", "cuda driver version", "nvidia topology", "legend", "nic legend",
    "ulimit soft", "hypervisor vendor", "rocm_home", "hipcc", "rocm driver version",
})  # fmt: skip


@dataclass(slots=True, kw_only=True)
class _Said:
    """What a report says, collected line by line."""

    fields: dict[str, str] = field(default_factory=dict)
    packages: list[Listed] = field(default_factory=list)
    gpus: dict[int, str] = field(default_factory=dict)
    conda_cuda: str | None = None
    unread: list[str] = field(default_factory=list)

    def value(self, *keys: str) -> str | None:
        """Return the first of these fields that says something."""
        found = (self.fields.get(key, "") for key in keys)
        return next((it for it in found if it.lower() not in _ABSENT), None)


def read_collect_env(text: str) -> Listing:
    """Read `python -m torch.utils.collect_env` or vLLM's longer one."""
    said = _collect(text, sglang=False)
    torch = _first(_VERSION, said.value("pytorch version"))
    vllm = _first(_VERSION, said.value("vllm version"))
    if vllm and "." not in vllm.split("+")[0].split("dev")[0].rstrip("."):  # cut off: `13b1.dev23`
        said.unread.append(f"vLLM Version: {vllm}")
        vllm = None
    packages = list(_with_version(said.packages, "torch", torch))
    packages = list(_with_version(packages, "vllm", vllm))
    engine = said.value("vllm build flags") is not None or "vllm version" in said.fields
    kind = "vLLM collect_env report" if engine else "torch collect_env report"
    return _listing(kind, said, packages)


def read_check_env(text: str) -> Listing:
    """Read `python -m sglang.check_env`."""
    said = _collect(text, sglang=True)
    return _listing("SGLang check_env report", said, said.packages)


def _collect(text: str, *, sglang: bool) -> _Said:
    """Go over the lines; a list of GPUs may follow its key on lines of its own."""
    said = _Said()
    for raw in text.splitlines():
        line = raw.strip()
        if line.endswith("Could not collect"):
            continue
        if pip := _PIP_LINE.fullmatch(line):
            said.packages += parse_line(pip[1], said.unread)
        elif conda := _CONDA_LINE.fullmatch(line):
            found, cuda = parse_conda_row(conda[1])
            said.packages += found
            said.conda_cuda = said.conda_cuda or cuda
        elif found_field := _FIELD.fullmatch(line):
            _take_field(found_field["key"].strip(), found_field["value"].strip(), said, sglang=sglang)
    return said


def _take_field(key: str, value: str, said: _Said, *, sglang: bool) -> None:
    """Take one `key: value`; GPUs and SGLang's packages look like that, too."""
    line = f"{key}: {value}"
    plain = key.lower()
    if _CAPABILITY.fullmatch(key):
        said.fields.setdefault("compute capability", value)
    elif gpu := _GPU_LINE.fullmatch(line) or _GPU_LINE.fullmatch(value):
        said.gpus.update(dict.fromkeys((int(it) for it in gpu["numbers"].split(",")), gpu["name"].strip()))
    elif sglang and plain not in _SGLANG_FACTS and " " not in key and clean_version(value):
        name = _MODULES.get(plain, str(canonicalize_name(key)))
        said.packages.append(Listed(name=name, version=value))
    else:
        said.fields.setdefault(plain, value)


def _with_version(packages: list[Listed], name: str, version: str | None) -> Iterator[Listed]:
    """Add what a package says of itself, or its local label where pip's list has none."""
    if version is None or clean_version(version) is None:
        yield from packages
        return
    there = False
    for package in packages:
        if package.name == name and not package.foreign and package.version:
            there = True
            same = "+" in version and package.version == public_of(version)
            yield Listed(name=name, version=version) if same else package
        elif package.name != name:
            yield package
        elif clean_version(package.version or ""):
            there = True
            yield package
    if not there:
        yield Listed(name=name, version=version)


def _listing(kind: str, said: _Said, packages: list[Listed]) -> Listing:
    python = said.value("python version", "python")
    driver = _first(_DRIVER, said.value("nvidia driver version", "cuda driver version"))
    cuda = _first(_RELEASE, said.value("cuda used to build pytorch"))
    platform = " ".join(filter(None, (said.value("libc version"), said.value("python platform"))))
    architecture = said.value("architecture") or platform
    kept, masked = without_masked(merged(packages))
    notes = []
    if masked:
        notes.append(f"the versions of {', '.join(masked)} were masked before this was pasted")
    both = {it.version for it in kept if it.name == "torch" and it.version}
    if len(both) > 1:
        notes.append(f"torch is named in several versions: {', '.join(sorted(both))}")
    return Listing(
        kind=kind,
        packages=kept,
        complete=False,
        python=_first(_RELEASE, python),
        cuda=cuda or said.conda_cuda,
        toolkit=_first(_RELEASE, said.value("cuda runtime version")) or _nvcc(said.value("nvcc")),
        driver=driver,
        glibc=_first(_GLIBC, platform),
        machine=next((it for it in ("x86_64", "aarch64") if it in architecture), None),
        gpus=tuple(said.gpus[number] for number in sorted(said.gpus)),
        capability=_first(re.compile(r"[0-9]{1,2}\.[0-9]"), said.value("compute capability")),
        notes=tuple(notes),
        unread=tuple(said.unread),
    )


def _nvcc(text: str | None) -> str | None:
    """Return the release in `Cuda compilation tools, release 12.8, V12.8.93`."""
    found = re.search(r"release ([0-9]+\.[0-9]+)", text or "")
    return found[1] if found else None


def _first(pattern: re.Pattern[str], text: str | None) -> str | None:
    """Return the first match in a text, its group where it has one."""
    found = pattern.search(text or "")
    return (found[1] if found and pattern.groups else found[0]) if found else None
