"""A node as text for people: aligned, grouped, each value with its source. Pure."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from verl_env.node.facts import Finding, Folder, Gpu, GpuPair, Interpreter, Libcuda, Node, Nvml

WIDTH = 100
_LABEL = 14
_MARGIN = "  "


def render_node(node: Node, *, dim: Callable[[str], str] = str, strong: Callable[[str], str] = str) -> str:
    """Return the whole description; `dim` and `strong` colour, and add nothing that a reader needs."""
    groups = (
        ("Driver", list(_driver_lines(node))),
        ("GPUs", [_gpu_line(gpu) for gpu in node.gpus] or [("none", "", _no_gpu(node))]),
        ("Links", [_pair_line(pair) for pair in node.gpu_pairs]),
        ("Toolkits", [(it.version or "?", _with(it.path, it.error), it.source) for it in node.toolkits]),
        ("System", list(_system_lines(node))),
        ("Pythons", [_python_line(it) for it in node.interpreters]),
        ("Folders", [_folder_line(it) for it in node.folders]),
    )
    lines = [strong("A node as described, not measured here"), ""] if node.described else []
    for title, entries in groups:
        if entries:
            lines += [strong(title), *_align(entries, dim), ""]
    for finding in node.findings:
        lines += [*_finding_lines(finding, strong), ""]
    if not node.findings and not node.described:
        lines += [strong("Findings"), f"{_MARGIN}none", ""]
    return "\n".join(lines).rstrip()


Entry = tuple[str, str, str]


def _align(entries: Sequence[Entry], dim: Callable[[str], str]) -> Iterator[str]:
    """Yield label, value and source in columns; a source that does not fit gets lines of its own."""
    label = max(_LABEL, *(len(entry[0]) + 2 for entry in entries))
    lines = [f"{_MARGIN}{name:<{label}}{text}" for name, text, _ in entries]
    column = max((len(line) for line, entry in zip(lines, entries, strict=True) if _fits(line, entry)), default=0)
    for line, entry in zip(lines, entries, strict=True):
        bracket = f"[{entry[2]}]" if entry[2] else ""
        start = (column if column + 2 + len(bracket) <= WIDTH else len(line)) + 2
        if not bracket or _fits(line, entry):
            yield f"{line:<{start}}{dim(bracket)}" if bracket else line.rstrip()
        else:
            indent = len(_MARGIN) + label
            yield line.rstrip()
            yield from (f"{' ' * indent}{dim(part)}" for part in textwrap.wrap(bracket, WIDTH - indent))


def _fits(line: str, entry: Entry) -> bool:
    """Whether the source fits behind the value."""
    return len(line) + 2 + len(f"[{entry[2]}]") <= WIDTH


def _driver_lines(node: Node) -> Iterator[Entry]:
    """Yield kernel driver, CUDA driver API, libcuda and NVML under their own names: they can disagree."""
    driver = node.driver
    yield ("kernel driver", driver.version if driver else "none", driver.source if driver else "")
    if node.driver_api:
        yield ("CUDA driver API", node.driver_api.value, node.driver_api.source)
    if not node.described:
        yield _libcuda_line(node.libcuda)
        yield _nvml_line(node.nvml)
    if node.nvidia_device and not node.described:
        yield ("hardware", node.nvidia_device.value, node.nvidia_device.source)
    for other in node.other_accelerators:
        yield ("other vendor", other.name, other.source)


def _libcuda_line(libcuda: Libcuda | None) -> Entry:
    """Say which libcuda, and whether it works."""
    if libcuda is None:
        return ("libcuda", "none that a program would find", "")
    kind = "compat, " if libcuda.compat else ""
    return ("libcuda", f"{libcuda.path}: {kind}{libcuda.error or 'works'}", libcuda.source)


def _nvml_line(nvml: Nvml | None) -> Entry:
    """Say NVML's version, or what is wrong with it."""
    if nvml is None:
        return ("NVML", "none that a program would find", "")
    return ("NVML", nvml.error or nvml.version or "works", nvml.source)


def _gpu_line(gpu: Gpu) -> Entry:
    """Describe one GPU."""
    facts = [gpu.name]
    if gpu.compute_capability:
        facts.append(f"compute capability {gpu.compute_capability}")
    if gpu.memory_total_mib is not None:
        free = f" ({gpu.memory_free_mib} free)" if gpu.memory_free_mib is not None else ""
        facts.append(f"{gpu.memory_total_mib} MiB{free}")
    if gpu.mig:
        facts.append(f"MIG {gpu.mig}")
    return ("?" if gpu.index is None else str(gpu.index), ", ".join(facts), gpu.source)


def _pair_line(pair: GpuPair) -> Entry:
    """Describe how two GPUs reach each other, in the words of `nvidia-smi topo`."""
    path = pair.path or "path not known"
    read = "not known" if pair.p2p_read is None else pair.p2p_read
    return (f"{pair.one} - {pair.other}", f"{path}, P2P read {read}", "NVML")


def _no_gpu(node: Node) -> str:
    """Say whether there is none, or none is known of."""
    return "not described" if node.described else "looked for by NVML, nvidia-smi, libcuda, /proc"


def _system_lines(node: Node) -> Iterator[Entry]:
    """Yield what the machine is apart from its GPUs."""
    named = (
        ("architecture", node.machine),
        ("processor", node.cpu),
        ("glibc", node.glibc),
        ("distribution", node.distribution),
        ("kernel", node.kernel),
        ("WSL", node.wsl),
    )
    for label, value in named:
        if value:
            yield (label, value.value, value.source)
        elif label == "glibc":
            yield (label, "not known", "")
    if node.container:
        yield ("container", node.container.name, node.container.source)
    if node.scheduler:
        yield ("scheduler", node.scheduler.name, node.scheduler.source)


def _python_line(python: Interpreter) -> Entry:
    """Describe one Python."""
    if not python.starts:
        return ("does not start", _with(python.path, python.error), python.source)
    notes = [] if python.implementation == "cpython" else [python.implementation or "unknown implementation"]
    notes += [] if python.headers else ["no Python.h"]
    return (python.version or "?", _with(python.path, ", ".join(notes)), python.source)


def _folder_line(folder: Folder) -> Entry:
    """Describe one folder."""
    if folder.free_bytes is None:
        return (folder.role, _with(folder.path, folder.error), folder.source)
    facts = [f"{folder.free_bytes / 1e9:.1f} GB free on {folder.filesystem or 'an unknown file system'}"]
    facts += ["network"] if folder.network else []
    facts += [] if folder.writable else ["not writable"]
    facts += [folder.error] if folder.error else []
    return (folder.role, f"{folder.path}: {', '.join(facts)}", folder.source)


def _with(text: str, note: str | None) -> str:
    """Return text, with its note after a colon when there is one."""
    return f"{text}: {note}" if note else text


def _finding_lines(finding: Finding, strong: Callable[[str], str]) -> Iterator[str]:
    """Yield a finding: what, then evidence, why and the one action."""
    yield strong(f"{finding.severity}: {finding.what}") + f" ({finding.id})"
    yield f"{_MARGIN}seen  {finding.evidence}"
    yield f"{_MARGIN}why   {finding.why}"
    yield f"{_MARGIN}do    {finding.action}"
