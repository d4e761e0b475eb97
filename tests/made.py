"""Builders of what pure tests hold against each other: rows, pins, nodes, locks."""

from __future__ import annotations

from datetime import date
from pathlib import Path

from verl_env.lock.build import build_lock
from verl_env.matrix.matrix import Entry, Matrix
from verl_env.matrix.pins import Pin, PinsHeader, make_pins
from verl_env.matrix.rows import Attention, Evidence, Row, Smoke
from verl_env.node.facts import Driver, Gpu, Libcuda, Named, Node, Value

DAY = date(2026, 11, 30)
DIGEST = "sha256:" + "0" * 64


def row_of(**parts) -> Row:
    """Return a row: CUDA 13.0 with a torch whose builds are known, unless `parts` say otherwise."""
    laid = {
        "title": "a set",
        "python": ("3.12",),
        "arch": ("x86_64",),
        "set": {"verl": "0.9.1", "torch": "2.11.0+cu130"},
        "cuda": "13.0",
        "smoke": Smoke(imports=("torch", "verl")),
        "attention": Attention(path="sdpa", settings=("a=b",)),
    }
    return Row(**(laid | parts))


def header_of(row="a", *, python="3.12", arch="x86_64", glibc="2.28", digest=DIGEST) -> PinsHeader:
    """Return the header of pins."""
    return PinsHeader(
        row=row,
        python=python,
        arch=arch,
        digest=digest,
        glibc=glibc,
        packages=1,
        download_bytes=1000,
        sources=("default",),
        made=DAY,
    )


def evidence_of(level="imported", *, pins=DIGEST, python="3.12.1", arch="x86_64") -> Evidence:
    """Return one entry of evidence."""
    return Evidence(level=level, date=DAY, python=python, arch=arch, pins=pins, device="none", glibc="2.35", by="tests")


def entry_of(row_id="a", *, level="exercised", glibc="2.28", pins=None, **parts) -> Entry:
    """Return a row with one variant for each of its Pythons and architectures, proved to `level` unless None."""
    row = row_of(evidence=(evidence_of(level),) if level else (), **parts)
    headers = [header_of(row_id, python=python, arch=arch, glibc=glibc) for python in row.python for arch in row.arch]
    return Entry(
        id=row_id, row=row, path=Path(f"/nowhere/rows/{row_id}.toml"), pins=tuple(headers if pins is None else pins)
    )


def cpu_entry(row_id="cpu", **parts) -> Entry:
    """Return a row for CPU work."""
    laid = {"cuda": None, "set": {"verl": "0.9.1", "torch": "2.13.0+cpu"}, "attention": None}
    return entry_of(row_id, **(laid | parts))


def matrix_of(facts, *entries) -> Matrix:
    """Return a matrix of these rows."""
    return Matrix(facts=facts, entries={entry.id: entry for entry in entries})


def gpu_of(capability, name="a GPU") -> Gpu:
    """Return a GPU by compute capability."""
    return Gpu(name=name, source="tests", compute_capability=capability)


H200 = gpu_of("9.0", "NVIDIA H200")


def node_of(driver=None, *, gpus=(), glibc="2.35", machine="x86_64", **parts) -> Node:
    """Return a node."""
    return Node(
        driver=Driver(version=driver, source="tests") if driver else None,
        gpus=tuple(gpus),
        glibc=Value(value=glibc, source="tests") if glibc else None,
        machine=Value(value=machine, source="tests") if machine else None,
        **parts,
    )


def compat_of(api, *, works=True, error=None) -> Libcuda:
    """Return a libcuda of a cuda-compat package."""
    return Libcuda(
        path="/usr/local/cuda/compat/libcuda.so.1",
        source="tests",
        compat=True,
        api_version=api,
        works=works,
        error=error,
    )


SLURM = Named(name="slurm", source="/etc/slurm")
AMD = Named(name="AMD", source="/dev/kfd")
NVIDIA_DEVICE = Value(value="NVIDIA device", source="/sys/bus/pci")


def pins_for(row="a", *, python="3.12", arch="x86_64", extra=()):
    """Return pins with a wheel that states a glibc, one from another source, and an sdist with what builds it."""
    pins = (
        Pin(name="verl", version="0.9.1", file="verl-0.9.1-py3-none-any.whl", size=11, sha256="a" * 64),
        Pin(
            name="torch",
            version="2.11.0+cu130",
            file="torch-2.11.0+cu130-cp312-cp312-manylinux_2_28_x86_64.whl",
            size=22,
            sha256="b" * 64,
            source="pytorch-cu130",
        ),
        Pin(
            name="antlr4-python3-runtime",
            version="4.9.3",
            file="antlr4-python3-runtime-4.9.3.tar.gz",
            size=33,
            sha256="c" * 64,
        ),
        *extra,
    )
    build = (
        Pin(name="setuptools", version="80.10.2", file="setuptools-80.10.2-py3-none-any.whl", size=44, sha256="d" * 64),
    )
    return make_pins(row, python, arch, pins=pins, build=build, made=DAY)


def urls_of(pins, base="https://one.invalid/files") -> dict[str, str]:
    """Return a URL for each file."""
    return {pin.file: f"{base}/{pin.file.replace('+', '%2B')}" for pin in pins.pins}


def lock_for(facts, pins=None, *, base="https://one.invalid/files", **parts):
    """Return the lock of a row with these pins."""
    pins = pins or pins_for()
    return build_lock(entry_of(pins.header.row, **parts), pins, facts, urls_of(pins, base))
