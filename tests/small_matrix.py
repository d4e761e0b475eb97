"""A small matrix that does not change when rows are added: sets of upstream's, all proved, for tables of nodes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from made import entry_of, matrix_of
from verl_env.matrix.choose import Choice, Obstacles, Wishes, choose
from verl_env.node.describe import describe
from verl_env.node.facts import Libcuda, Named, Node, Value
from verl_env.toml import loads

if TYPE_CHECKING:
    from verl_env.matrix.matrix import Matrix

X86, ARM = ("x86_64",), ("aarch64",)
BOTH = X86 + ARM

# id -> (set, CUDA, glibc, Pythons, architectures)
ROWS = {
    "cpu": ({"verl": "0.9.1", "torch": "2.13.0+cpu"}, None, "2.28", ("3.12", "3.11"), X86),
    "cu121": ({"verl": "0.2.0", "torch": "2.4.0", "vllm": "0.6.3.post1"}, "12.1", "2.17", ("3.10",), X86),
    "cu124": ({"verl": "0.4.1", "torch": "2.6.0", "vllm": "0.8.5.post1"}, "12.4", "2.28", ("3.11", "3.10"), X86),
    "cu126": ({"verl": "0.5.0", "torch": "2.7.1+cu126"}, "12.6", "2.28", ("3.12", "3.11", "3.10"), X86),
    "cu129": ({"verl": "0.7.1", "torch": "2.9.0", "vllm": "0.12.0"}, "12.9", "2.31", ("3.12", "3.11", "3.10"), X86),
    "sglang": (
        {"verl": "0.7.1", "torch": "2.9.1", "sglang": "0.5.8", "sgl-kernel": "0.3.21"},
        "12.9",
        "2.28",
        ("3.12", "3.11"),
        X86,
    ),
    "arm129": ({"verl": "0.8.0", "torch": "2.10.0+cu128", "vllm": "0.17.0"}, "12.9", "2.31", ("3.12", "3.11"), ARM),
    "cu130": (
        {"verl": "0.9.1", "torch": "2.11.0+cu130", "vllm": "0.24.0"},
        "13.0",
        "2.31",
        ("3.12", "3.11"),
        X86 + ARM,
    ),
}


def small_entry(row_id: str) -> Any:
    """Return one row of the small matrix."""
    packages, cuda, glibc, python, arch = ROWS[row_id]
    return entry_of(row_id, level="exercised", glibc=glibc, set=packages, cuda=cuda, python=python, arch=arch)


def small_matrix(facts) -> Matrix:
    """Return the whole of it, with the shipped facts."""
    return matrix_of(facts, *(small_entry(row_id) for row_id in ROWS))


def read_table(name: str) -> list[dict[str, Any]]:
    """Read a table of nodes that lies beside the tests."""
    return loads((Path(__file__).parent / "unit" / name).read_text(encoding="utf-8"))["node"]


def node_from(plain: dict[str, Any], matrix: Matrix) -> Node:
    """Return the node of one line of a table, as a probe of it would."""
    capability = plain.get("capability")
    names = dict.fromkeys(plain["gpus"], "9.0") if capability == "" else matrix.gpu_names()
    node = describe(
        driver=plain.get("driver"),
        gpus=plain.get("gpus", ()),
        compute_capabilities=(capability,) if capability else (),
        glibc=plain.get("glibc", "2.35") or None,
        machine=plain.get("arch", "x86_64"),
        names=names,
    )
    gpus = tuple(replace(gpu, mig=plain.get("mig")) for gpu in node.gpus)
    if capability == "":
        gpus = tuple(replace(gpu, compute_capability=None) for gpu in gpus)
    here = "the node"
    return replace(
        node,
        described=False,
        gpus=gpus,
        libcuda=_libcuda(plain),
        container=Named(name=plain["container"], source=here) if "container" in plain else None,
        scheduler=Named(name=plain["scheduler"], source=here) if "scheduler" in plain else None,
        other_accelerators=(Named(name=plain["accelerator"], source=here),) if "accelerator" in plain else (),
        nvidia_device=Value(value="a PCI device", source=here) if "device" in plain else node.nvidia_device,
        wsl=Value(value="microsoft-standard-WSL2", source=here) if "wsl" in plain else None,
        driver_api=Value(value=plain["wsl"], source=here) if "wsl" in plain else None,
    )


def _libcuda(plain: dict[str, Any]) -> Libcuda | None:
    """Return the cuda-compat libcuda of a node that has one; `broken` is what cuInit says of it."""
    if "compat" not in plain:
        return None
    return Libcuda(
        path="/usr/local/cuda/compat/libcuda.so.1",
        source="the node",
        compat=True,
        api_version=plain["compat"],
        works="broken" not in plain,
        error=plain.get("broken"),
    )


def choose_for(plain: dict[str, Any], matrix: Matrix, *, least: str = "imported") -> Choice:
    """Choose for one line of a table, with its wishes."""
    wishes = Wishes(
        verl=plain.get("verl"),
        engine=plain.get("engine"),
        python=plain.get("python"),
        row=plain.get("asked"),
        cpu=plain.get("cpu", False),
        prefer_native=plain.get("native", False),
        least=least,
    )
    return choose(matrix, node_from(plain, matrix), wishes, Obstacles())
