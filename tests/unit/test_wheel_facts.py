"""Reading a wheel's facts: fat binaries laid out byte by byte, and one small wheel."""

from __future__ import annotations

import struct
import zipfile
from collections import Counter

import pytest
from packaging.tags import parse_tag

from verl_env.matrix import device_code as code
from verl_env.matrix import wheel_facts
from verl_env.matrix.device_code import Unit
from verl_env.matrix.facts import BuildFacts

PLAIN, SPECIFIC, FAMILY = 0x8011, 0x108011, 0x1208011


def entry(kind, arch, flags, payload=b"\0" * 16):
    """Lay out one piece: 64 bytes of header, arch at 28, flags at 40, as nvcc 13.0 writes them."""
    header = struct.pack("<HHIQ", kind, 0x101, 64, len(payload)).ljust(28, b"\0")
    return (header + struct.pack("<I", arch).ljust(12, b"\0") + struct.pack("<Q", flags)).ljust(64, b"\0") + payload


def fatbin(*entries):
    """Lay out one fat binary, padded as the linker does."""
    body = b"".join(entries)
    whole = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body
    return whole + b"\0" * (-len(whole) % 8)


def unit(*binaries, ptx=()):
    """Return what one source file was compiled for."""
    return Unit(binaries=binaries, ptx=ptx)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(b"", [], id="nothing"),
        pytest.param(fatbin(entry(2, 80, PLAIN)), [unit("8.0")], id="a binary"),
        pytest.param(fatbin(entry(1, 90, PLAIN)), [unit(ptx=("9.0",))], id="PTX"),
        pytest.param(fatbin(entry(2, 90, SPECIFIC)), [unit("9.0a")], id="architecture-specific"),
        pytest.param(fatbin(entry(2, 100, FAMILY)), [unit("10.0f")], id="family-specific"),
        pytest.param(
            fatbin(entry(2, 120, PLAIN), entry(2, 75, PLAIN), entry(1, 120, PLAIN)),
            [unit("7.5", "12.0", ptx=("12.0",))],
            id="one source file, in order of the numbers",
        ),
        pytest.param(
            fatbin(entry(2, 80, PLAIN, b"x" * 12)) + b"\0" * 16 + fatbin(entry(2, 86, PLAIN)),
            [unit("8.0"), unit("8.6")],
            id="two source files, with padding between",
        ),
    ],
)
def test_device_code_is_read_from_the_headers(data, expected):
    """The layout is what cuobjdump shows of torch 2.11.0 and vLLM 0.24.0; `f` is vLLM's own build list's."""
    assert expected == list(code.device_code(data))


@pytest.mark.parametrize(
    ("machine", "abi", "flags", "expected"),
    [
        pytest.param(190, 8, 0x06006402, "10.0", id="CUDA 13"),
        pytest.param(190, 8, 0x0600670A, "10.3", id="CUDA 13, architecture-specific"),
        pytest.param(190, 7, 0x005A055A, "9.0", id="CUDA 12"),
        pytest.param(62, 0, 0, None, id="a library for a processor"),
    ],
)
def test_cubin_says_its_architecture(machine, abi, flags, expected):
    """The numbers are those of flashinfer-cubin 0.6.12, whose files have the architecture in their names."""
    header = bytearray(64)
    header[:4], header[8] = b"\x7fELF", abi
    struct.pack_into("<H", header, 18, machine)
    struct.pack_into("<I", header, 48, flags)
    assert expected == code.cubin_architecture(bytes(header))
    assert code.cubin_architecture(bytes(header[:20])) is None


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        pytest.param(
            {unit("8.0", "9.0", "10.0"): 384, unit("8.0", "9.0", "10.0", "10.3a"): 59, unit("8.9", "9.0a"): 1},
            unit("8.0", "9.0", "10.0"),
            id="torch 2.11: 59 of 444 files are also for sm_103a",
        ),
        pytest.param(
            {unit("7.5", "8.0", "8.6", "10.0"): 15, unit("8.0", ptx=("8.0",)): 18},
            unit("7.5", "8.0", "8.6", "10.0"),
            id="vLLM 0.22: more files are special than ordinary",
        ),
        pytest.param({unit("8.0", "10.0a"): 40}, unit("8.0", "10.0a"), id="sgl-kernel: all is for sm_100a"),
        pytest.param(
            {unit("8.0", "12.0", ptx=("12.0",)): 9}, unit("8.0", "12.0", ptx=("12.0",)), id="PTX of every file"
        ),
    ],
)
def test_a_package_runs_on_what_its_ordinary_kernels_were_compiled_for(counts, expected):
    """That a special kernel has another architecture does not make the rest run there."""
    assert expected == code.ordinary(Counter(counts))


@pytest.mark.parametrize(
    ("binary", "expected"),
    [
        pytest.param(b"\x7fELF".ljust(20, b"\0") + struct.pack("<I", 129), "12.9", id="the ELF version of 12.9"),
        pytest.param(
            b"\x7fELF".ljust(20, b"\0") + struct.pack("<I", 1) + b"Cuda compilation tools, release 13.0, V13.0.88",
            "13.0",
            id="the note of 13.0",
        ),
        pytest.param(b"\x7fELF".ljust(20, b"\0") + struct.pack("<I", 1), None, id="neither"),
    ],
)
def test_a_device_binary_names_its_toolkit(binary, expected):
    """What vLLM 0.12.0 (12.9) and 0.24.0 (13.0) link is only libcudart.so.12 and .13."""
    assert expected == code.toolkit_of(binary)


@pytest.mark.parametrize(
    ("tag", "requires", "expected"),
    [
        pytest.param("cp312-cp312-linux_x86_64", ">=3.10", ("3.12",), id="one Python's wheel"),
        pytest.param("cp38-abi3-linux_x86_64", "<3.14,>=3.10", ("3.10", "3.11", "3.12", "3.13"), id="a stable ABI"),
        pytest.param("cp310-abi3-linux_x86_64", "<3.12", ("3.10", "3.11"), id="a stable ABI with a floor"),
    ],
)
def test_pythons_of_a_wheel(tag, requires, expected):
    """A stable ABI begins at its tag; where it ends, only the metadata says."""
    assert expected == wheel_facts.pythons(parse_tag(tag), requires)


@pytest.mark.parametrize(
    ("requires", "expected"),
    [
        pytest.param(["numpy", "torch==2.11.0"], "2.11.0", id="pinned"),
        pytest.param(["torch>=2.3"], None, id="a range is no pin"),
        pytest.param(['torch==2.6.0; extra == "srt"'], "2.6.0", id="only an extra pins it"),
        pytest.param(['torch==2.6.0; extra == "x"', "torch==2.7.1"], "2.7.1", id="what holds always comes first"),
        pytest.param([], None, id="not asked for"),
    ],
)
def test_torch_pin(requires, expected):
    """The engine's torch is fixed by its metadata."""
    assert expected == wheel_facts.torch_pin(requires)


def test_what_is_known_is_written_and_the_rest_is_left_out():
    """An empty list is knowledge; an absent key is not."""
    build = BuildFacts(
        package="x",
        version="1",
        machine="x86_64",
        read="wheel",
        source="x.whl",
        architectures=(),
        libraries=("l",),
    )

    written = wheel_facts.toml(build)

    assert "architectures = []" in written
    assert 'libraries = [\n    "l",\n]' in written
    assert not {"ptx", "cuda", "cpu", "python"} & {line.split(" = ")[0] for line in written.splitlines()}


def elf(sections):
    """Lay out an ELF64 file that has just these sections."""
    names = b"\0" + b"".join(name.encode() + b"\0" for name in [*sections, ".shstrtab"])
    bodies = [b"", *sections.values(), names]
    kinds = [0, *(1 for _ in sections), 3]
    at, where = 64, []
    for body in bodies:
        where.append(at)
        at += len(body)
    offsets = [0, *(names.index(name.encode()) for name in [*sections, ".shstrtab"])]
    table = b"".join(
        struct.pack("<IIQQQQIIQQ", offsets[i], kinds[i], 0, 0, where[i] if i else 0, len(bodies[i]), 0, 0, 8, 0)
        for i in range(len(bodies))
    )
    ident = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    header = struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 0, at, 0, 64, 0, 0, 64, len(bodies), len(bodies) - 1)
    return ident + header + b"".join(bodies) + table


def test_a_wheel_is_read_as_a_whole(tmp_path, monkeypatch):
    """The main library decides, torch names its CUDA, and code that awaits a link does not count."""
    pytest.importorskip("elftools", reason="pyelftools is for maintainers")
    monkeypatch.setenv("PATH", str(tmp_path))
    main = elf(
        {
            ".nv_fatbin": fatbin(entry(2, 80, PLAIN), entry(2, 90, PLAIN), entry(1, 90, PLAIN)),
            "__nv_relfatbin": fatbin(entry(1, 120, PLAIN)),
        }
    )
    wheel = tmp_path / "torch-2.99.0-cp312-cp312-manylinux_2_28_x86_64.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("torch/lib/libtorch_cuda.so", main)
        archive.writestr("torch/lib/libtorch_cuda.so.1", main)
        archive.writestr("torch/lib/libone.so", elf({".nv_fatbin": fatbin(entry(2, 90, SPECIFIC))}))
        archive.writestr("torch/lib/libplain.so", elf({}))
        archive.writestr("torch/version.py", "cuda: Optional[str] = '13.0'\n")
        archive.writestr("torch-2.99.0.dist-info/METADATA", "Name: torch\nVersion: 2.99.0\nRequires-Python: >=3.10\n")

    assert wheel_facts.read_wheel(wheel) == BuildFacts(
        package="torch",
        version="2.99.0",
        machine="x86_64",
        read="wheel",
        source=wheel.name,
        cuda="13.0",
        local="cu130",
        architectures=("8.0", "9.0"),
        ptx=("9.0",),
        python=("3.12",),
        tag="manylinux_2_28_x86_64",
        libraries=(
            "torch/lib/libone.so: 9.0a",
            "torch/lib/libtorch_cuda.so: 8.0 9.0 · PTX 9.0",
        ),
    )


def test_torch_without_cuda_says_so(tmp_path):
    """Wheels for aarch64 up to torch 2.10 are such."""
    wheel = tmp_path / "torch-2.9.1-cp312-cp312-manylinux_2_28_aarch64.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("torch/version.py", "cuda: Optional[str] = None\n")
        archive.writestr("torch-2.9.1.dist-info/METADATA", "Name: torch\nVersion: 2.9.1\n")

    found = wheel_facts.read_wheel(wheel)

    assert (found.cpu, found.cuda, found.local, found.machine) == (True, None, "cpu", "aarch64")
