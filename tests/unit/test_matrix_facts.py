"""The facts of the matrix and what follows from them; expectations are NVIDIA's and upstream's."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from verl_env.errors import MatrixError
from verl_env.matrix.facts import BuildFacts, Facts, admits, parse_facts

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

MATRICES = Path(__file__).parents[2] / "matrices"


@pytest.fixture(scope="module")
def facts() -> Facts:
    """Return the shipped facts."""
    names = ("cuda", "torch", "gpus", "mirrors")
    return parse_facts(*(tomllib.loads((MATRICES / f"{name}.toml").read_text()) for name in names))


@pytest.mark.parametrize(
    ("version", "driver", "floor"),
    [
        pytest.param("11.8", "520.61.05", "450.80.02", id="11.8"),
        pytest.param("12.4", "550.54.14", "525.60.13", id="12.4"),
        pytest.param("12.4.131", "550.54.14", "525.60.13", id="a patch release is its minor's toolkit"),
        pytest.param("12.8", "570.26", "525.60.13", id="12.8"),
        pytest.param("12.9", "575.51.03", "525.60.13", id="12.9"),
        pytest.param("13.0", "580.65.06", "580", id="13.0: 580 is the written floor, 580.65.06 the GA driver"),
        pytest.param("13.5", None, "580", id="13.5: its own driver is not known, and not guessed"),
    ],
)
def test_toolkit_drivers_are_those_of_the_release_notes(facts, version, driver, floor):
    """CUDA release notes, "CUDA Toolkit and Corresponding Driver Versions", and the compatibility guide."""
    found = facts.toolkit(version)

    assert (driver, floor) == (found.driver, found.minor_driver)


def test_a_toolkit_that_nobody_described_is_none(facts):
    """12.7 was never released, and 14.0 is not known."""
    assert [facts.toolkit("12.7"), facts.toolkit("14.0")] == [None, None]


def test_565_is_not_a_base_of_cuda_13_2(facts):
    """A user saw cuInit 803 on exactly this pair; NVIDIA's image does not list it."""
    assert facts.toolkit("13.2").forward_branches == ("535", "570", "580", "590")
    assert facts.toolkit("13.3").forward_branches is None


def test_every_fact_of_a_toolkit_has_its_source(facts):
    """Whoever doubts a number must find where it was read."""
    for toolkit in facts.toolkits:
        cited = {it.fact for it in toolkit.source}
        wanted = {key for key in ("driver", "minor_driver", "forward_branches") if getattr(toolkit, key) is not None}
        wanted |= {"compute"} if toolkit.compute_min or toolkit.compute_added else set()
        assert wanted == cited, toolkit.version


@pytest.mark.parametrize(
    ("name", "gpu", "capability"),
    [
        # As NVML writes them.
        pytest.param("NVIDIA A100-SXM4-80GB", "A100", "8.0", id="A100 SXM"),
        pytest.param("NVIDIA A100 80GB PCIe", "A100", "8.0", id="A100 PCIe"),
        pytest.param("NVIDIA A100-PCIE-40GB", "A100", "8.0", id="A100 PCIE 40"),
        pytest.param("NVIDIA A100-PG509-200", "A100", "8.0", id="A100 by board number"),
        pytest.param("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "A100", "8.0", id="a MIG slice of an A100"),
        pytest.param("NVIDIA-A100-SXM4-80GB-MIG-1g.10gb", "A100", "8.0", id="the same as a Kubernetes label"),
        pytest.param("GRID A100-40C", "A100", "8.0", id="a vGPU of an A100"),
        pytest.param("NVIDIA A800-SXM4-80GB", "A800", "8.0", id="A800"),
        pytest.param("NVIDIA A800 40GB Active", "A800", "8.0", id="A800 of a workstation"),
        pytest.param("NVIDIA A10", "A10", "8.6", id="A10 is no A100"),
        pytest.param("NVIDIA A10G", "A10G", "8.6", id="A10G"),
        pytest.param("NVIDIA A10-24Q", "A10", "8.6", id="a vGPU of an A10"),
        pytest.param("NVIDIA A30", "A30", "8.0", id="A30"),
        pytest.param("NVIDIA A40", "A40", "8.6", id="A40"),
        pytest.param("NVIDIA L4", "L4", "8.9", id="L4"),
        pytest.param("NVIDIA L40", "L40", "8.9", id="L40"),
        pytest.param("NVIDIA L40S", "L40S", "8.9", id="L40S"),
        pytest.param("NVIDIA L20", "L20", "8.9", id="L20"),
        pytest.param("Tesla T4", "T4", "7.5", id="T4"),
        pytest.param("Tesla V100-SXM2-32GB", "V100", "7.0", id="V100 SXM"),
        pytest.param("Tesla V100-DGXS-32GB", "V100", "7.0", id="V100 of a DGX Station"),
        pytest.param("Tesla V100S-PCIE-32GB", "V100", "7.0", id="V100S"),
        pytest.param("Tesla P100-PCIE-16GB", "P100", "6.0", id="P100"),
        pytest.param("NVIDIA H100 80GB HBM3", "H100", "9.0", id="H100 SXM"),
        pytest.param("NVIDIA H100 PCIe", "H100", "9.0", id="H100 PCIe"),
        pytest.param("NVIDIA H100 NVL", "H100", "9.0", id="H100 NVL"),
        pytest.param("NVIDIA H800", "H800", "9.0", id="H800"),
        pytest.param("NVIDIA H20", "H20", "9.0", id="H20"),
        pytest.param("NVIDIA H20-3e", "H20", "9.0", id="H20 141 GB"),
        pytest.param("NVIDIA H200", "H200", "9.0", id="H200"),
        pytest.param("NVIDIA H200 NVL", "H200", "9.0", id="H200 NVL"),
        pytest.param("NVIDIA GH200 480GB", "GH200", "9.0", id="GH200"),
        pytest.param("NVIDIA GH200 144G HBM3e", "GH200", "9.0", id="GH200 144"),
        pytest.param("NVIDIA B200", "B200", "10.0", id="B200"),
        pytest.param("NVIDIA GB200", "GB200", "10.0", id="GB200"),
        pytest.param("NVIDIA B300 SXM6 AC", None, None, id="a suffix nobody has described"),
        pytest.param("NVIDIA GB300", "GB300", "10.3", id="GB300"),
        pytest.param("NVIDIA GB10", "GB10", "12.1", id="DGX Spark"),
        pytest.param("NVIDIA Thor", "Thor", "11.0", id="Thor"),
        pytest.param("NVIDIA GeForce RTX 3090", "RTX 3090", "8.6", id="RTX 3090"),
        pytest.param("NVIDIA GeForce RTX 3090 Ti", "RTX 3090 Ti", "8.6", id="RTX 3090 Ti is another"),
        pytest.param("NVIDIA GeForce RTX 4090", "RTX 4090", "8.9", id="RTX 4090"),
        pytest.param("NVIDIA GeForce RTX 4090 D", "RTX 4090", "8.9", id="RTX 4090 D"),
        pytest.param("NVIDIA GeForce RTX 4070 Ti SUPER", "RTX 4070 Ti", "8.9", id="RTX 4070 Ti SUPER"),
        pytest.param("NVIDIA GeForce RTX 3080 Laptop GPU", "RTX 3080", "8.6", id="RTX 3080 of a laptop"),
        pytest.param("NVIDIA GeForce RTX 3050 A Laptop GPU", None, None, id="RTX 3050 A: another chip, not guessed"),
        pytest.param("NVIDIA GeForce RTX 2080 Ti", "RTX 2080 Ti", "7.5", id="RTX 2080 Ti"),
        pytest.param("NVIDIA GeForce RTX 5090", "RTX 5090", "12.0", id="RTX 5090"),
        pytest.param("NVIDIA RTX A6000", "RTX A6000", "8.6", id="RTX A6000"),
        pytest.param("NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada", "8.9", id="RTX 6000 Ada"),
        pytest.param("Quadro RTX 6000", "Quadro RTX 6000", "7.5", id="Quadro RTX 6000"),
        pytest.param("Quadro RTX 8000", "Quadro RTX 8000", "7.5", id="Quadro RTX 8000"),
        pytest.param(
            "NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
            "RTX PRO 6000 Blackwell",
            "12.0",
            id="RTX PRO 6000",
        ),
        pytest.param(
            "NVIDIA RTX PRO 6000 Blackwell Server Edition",
            "RTX PRO 6000 Blackwell Server Edition",
            "12.0",
            id="RTX PRO 6000 of a server",
        ),
        pytest.param("NVIDIA RTX 6000", None, None, id="three products are called RTX 6000"),
        # As people, clouds and schedulers write them.
        pytest.param("h200", "H200", "9.0", id="typed h200"),
        pytest.param("rtx4090", "RTX 4090", "8.9", id="typed rtx4090"),
        pytest.param("rtx3090ti", "RTX 3090 Ti", "8.6", id="typed rtx3090ti"),
        pytest.param("4090", "RTX 4090", "8.9", id="typed 4090"),
        pytest.param("a100-80gb", "A100", "8.0", id="typed a100-80gb"),
        pytest.param("a100_sxm4_80gb", "A100", "8.0", id="typed with underscores"),
        pytest.param("h100sxm5", "H100", "9.0", id="typed h100sxm5"),
        pytest.param("nvidia-h100-80gb", "H100", "9.0", id="a GKE accelerator"),
        pytest.param("nvidia-tesla-t4", "T4", "7.5", id="a GKE T4"),
        pytest.param("rtx-a6000", "RTX A6000", "8.6", id="typed rtx-a6000"),
        pytest.param("a6000", "RTX A6000", "8.6", id="typed a6000"),
        pytest.param("rtx8000", "Quadro RTX 8000", "7.5", id="typed rtx8000: only one product has it"),
        pytest.param("dgx-spark", "GB10", "12.1", id="typed dgx-spark"),
        pytest.param("gpu", None, None, id="no name at all"),
        pytest.param("", None, None, id="nothing"),
        pytest.param("MI300X", None, None, id="another vendor's"),
    ],
)
def test_gpu_names_mean_one_gpu_or_none(facts, name, gpu, capability):
    """Compute capabilities are those of developer.nvidia.com/cuda-gpus; the names are real ones."""
    found = facts.gpu(name)

    assert (gpu, capability) == ((found.name, found.compute_capability) if found else (None, None))


def test_no_two_gpus_share_a_name(facts):
    """An alias of two GPUs would make the answer depend on the order of the file."""
    for gpu in facts.gpus:
        for name in (gpu.name, *gpu.aliases):
            assert gpu == facts.gpu(name), name


@pytest.mark.parametrize(
    ("name", "datacenter"),
    [
        pytest.param("A100", True, id="A100"),
        pytest.param("T4", True, id="T4"),
        pytest.param("L40S", True, id="L40S"),
        pytest.param("RTX 4090", False, id="GeForce has no forward compatibility"),
        pytest.param("RTX A6000", False, id="only select RTX servers have it, and the name does not tell"),
    ],
)
def test_forward_compatibility_is_for_data_center_gpus(facts, name, datacenter):
    """docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html."""
    assert datacenter is facts.gpu(name).datacenter


@pytest.mark.parametrize(
    ("package", "version", "machine", "cuda", "read"),
    [
        pytest.param("torch", "2.11.0", "x86_64", "13.0", "wheel", id="the default index's torch 2.11 is cu130"),
        pytest.param("torch", "2.11.0+cu130", "x86_64", "13.0", "wheel", id="so is its local label"),
        pytest.param("torch", "2.11.0+cu128", "x86_64", "12.8", "table", id="another label is another build"),
        pytest.param("torch", "2.10.0", "x86_64", "12.8", "wheel", id="2.10 is still cu128"),
        pytest.param("torch", "2.6.0", "x86_64", "12.4", "wheel", id="2.6 is cu124"),
        pytest.param("torch", "2.3.1", "x86_64", "12.1", "wheel", id="2.3 is cu121"),
        pytest.param("torch", "2.11.0", "aarch64", "13.0", "wheel", id="aarch64 is CUDA from 2.11"),
        pytest.param("vllm", "0.24.0", "x86_64", "13.0", "wheel", id="vLLM 0.24 is CUDA 13.0"),
        pytest.param("vllm", "0.24.0", "aarch64", "13.0", "wheel", id="also on aarch64"),
        pytest.param("vllm", "0.12.0", "x86_64", "12.9", "wheel", id="vLLM 0.12 is 12.9 beside torch's 12.8"),
        pytest.param("vllm", "0.8.5.post1", "x86_64", "12.4", "wheel", id="vLLM 0.8.5.post1 is 12.4"),
        pytest.param("vLLM", "0.12.0", "x86_64", "12.9", "wheel", id="a name is canonicalized"),
    ],
)
def test_build_is_the_one_that_a_version_means(facts, package, version, machine, cuda, read):
    """Without a local label a version means what the default index serves."""
    found = facts.build(package, version, machine=machine)

    assert (cuda, read) == (found.cuda, found.read)


@pytest.mark.parametrize(
    ("package", "version", "machine"),
    [
        pytest.param("torch", "2.11.0+cu118", "x86_64", id="no such variant"),
        pytest.param("torch", "1.13.1", "x86_64", id="too old to be described"),
        pytest.param("torch", "2.11.0", "ppc64le", id="no such machine"),
        pytest.param("numpy", "2.0.0", "x86_64", id="no device code"),
    ],
)
def test_a_build_that_nobody_described_is_none(facts, package, version, machine):
    """Nothing is taken from a neighbour."""
    assert facts.build(package, version, machine=machine) is None


def test_torch_for_aarch64_before_2_11_has_no_cuda(facts):
    """The wheels of the default index carry no CUDA there, so no GPU is admitted."""
    found = facts.build("torch", "2.9.1", machine="aarch64")

    assert (found.cpu, found.cuda, admits(found, "9.0")) == (True, None, False)


def test_an_exact_release_comes_before_its_minor():
    """2.9.1 has an entry of its own; 2.9.0 falls back to its minor's."""
    facts = parse_facts({}, {"build": [_plain("2.9", "12.6"), _plain("2.9.1", "12.8")]}, {}, {})

    found = [facts.build("torch", version, machine="x86_64").cuda for version in ("2.9.1", "2.9.0", "2.9.1.0")]
    assert found == ["12.8", "12.6", "12.8"]


def _plain(version, cuda):
    return {
        "package": "torch",
        "version": version,
        "machine": "x86_64",
        "cuda": cuda,
        "indexes": ["default"],
        "read": "table",
        "source": "a test",
    }


def _build(*architectures, ptx=()):
    return BuildFacts(
        package="torch",
        version="1",
        machine="x86_64",
        read="table",
        source="a test",
        architectures=architectures,
        ptx=ptx,
    )


@pytest.mark.parametrize(
    ("architectures", "device", "expected"),
    [
        pytest.param(("8.0",), "8.0", True, id="the same"),
        pytest.param(("8.0",), "8.6", True, id="a newer minor of the major"),
        pytest.param(("8.6",), "8.0", False, id="an older minor"),
        pytest.param(("8.0", "8.6"), "9.0", False, id="another major"),
        pytest.param(("7.5", "8.0"), "7.0", False, id="a V100 with code from Turing on"),
        pytest.param(("9.0a",), "9.0", True, id="architecture-specific, there"),
        pytest.param(("10.0a",), "10.3", False, id="architecture-specific, elsewhere"),
        pytest.param(("10.0f",), "10.3", True, id="family-specific, in the family"),
        pytest.param(("10.0f",), "12.0", False, id="family-specific, another family"),
        pytest.param(("10.3f",), "10.0", False, id="family-specific, an older member"),
        pytest.param(("12.0",), "12.1", True, id="a DGX Spark runs sm_120"),
        pytest.param(("8.0", "8.6"), "8.7", False, id="Jetson Orin runs no binary of another chip"),
        pytest.param(("8.7",), "8.9", False, id="nor another chip Orin's"),
        pytest.param(("8.7",), "8.7", True, id="Orin runs its own"),
        pytest.param(("9.0", "10.0", "12.0"), "11.0", False, id="Thor"),
    ],
)
def test_binaries_run_where_the_programming_guide_says(architectures, device, expected):
    """CUDA Programming Guide: binary compatibility, and family- and architecture-specific features."""
    assert expected is admits(_build(*architectures), device)


@pytest.mark.parametrize(
    ("ptx", "device", "ptx_ok", "expected"),
    [
        pytest.param(("8.0",), "9.0", True, True, id="the driver compiles it for a newer GPU"),
        pytest.param(("8.0",), "9.0", False, False, id="under minor-version compatibility it does not"),
        pytest.param(("9.0",), "8.9", True, False, id="never for an older GPU"),
        pytest.param(("9.0a",), "10.0", True, False, id="architecture-specific PTX stays there"),
        pytest.param(("10.0f",), "10.3", True, True, id="family-specific PTX within its family"),
    ],
)
def test_ptx_runs_on_newer_gpus_where_the_driver_can_compile_it(ptx, device, ptx_ok, expected):
    """CUDA Programming Guide: PTX compatibility; CUDA compatibility guide: no PTX JIT of a newer minor."""
    assert expected is admits(_build("7.5", ptx=ptx), device, ptx_ok=ptx_ok)


@pytest.mark.parametrize(
    ("build", "ptx_ok", "expected"),
    [
        pytest.param(_build("8.0"), False, False, id="known, and not there"),
        pytest.param(_build("8.0", ptx=None), False, False, id="PTX does not matter here"),
        pytest.param(_build("8.0", ptx=None), True, None, id="PTX would matter, and is not known"),
        pytest.param(
            BuildFacts(package="x", version="1", machine="x86_64", read="table", source="a test"),
            False,
            None,
            id="nothing is known",
        ),
    ],
)
def test_what_is_not_known_is_not_answered(build, ptx_ok, expected):
    """None is neither yes nor no."""
    assert expected is admits(build, "9.0", ptx_ok=ptx_ok)


@pytest.mark.parametrize(
    ("package", "version", "device", "expected"),
    [
        pytest.param("torch", "2.11.0", "7.0", False, id="torch 2.11 dropped Volta (pytorch PR 175253)"),
        pytest.param("torch", "2.10.0", "7.0", True, id="2.10 still has it"),
        pytest.param("torch", "2.11.0", "8.9", True, id="an L40S runs sm_86"),
        pytest.param("torch", "2.7.1", "10.0", False, id="Blackwell needs cu128"),
        pytest.param("torch", "2.7.1+cu128", "10.0", True, id="and has it there"),
        pytest.param("torch", "2.7.1+cu128", "7.0", False, id="without Volta"),
        pytest.param("torch", "2.9.1+cu129", "7.0", True, id="which came back (pytorch issue 157517)"),
        pytest.param("torch", "2.5.1+cu121", "8.0", None, id="no document was found for that one"),
        pytest.param("vllm", "0.24.0", "7.0", False, id="vLLM from 0.20 begins at 7.5"),
        pytest.param("vllm", "0.12.0", "7.0", True, id="0.12 still has 7.0"),
        pytest.param("vllm", "0.9.1", "12.0", False, id="0.9.1 has no code for an RTX 5090"),
        pytest.param("vllm", "0.26.0+cu129", "7.5", True, id="CUDA 12.9 of a new vLLM: T4"),
        pytest.param("vllm", "0.26.0+cu129", "10.3", True, id="a B300 runs sm_100"),
        pytest.param("sgl-kernel", "0.3.21", "10.0", True, id="sgl-kernel has sm_100a"),
        pytest.param("sgl-kernel", "0.3.21", "10.3", False, id="and nothing for a B300"),
        pytest.param("sgl-kernel", "0.3.21", "7.5", False, id="nor for a T4"),
        pytest.param("vllm", "0.8.5.post1", "8.0", True, id="the A100 on driver 535"),
    ],
)
def test_shipped_builds_admit_what_upstream_says(facts, package, version, device, expected):
    """The wheels that were opened agree with what upstream announced."""
    assert expected is admits(facts.build(package, version, machine="x86_64"), device)


def test_every_build_names_a_known_source_and_how_it_was_read(facts):
    """`read = "wheel"` names the very file; indexes are symbols of mirrors.toml."""
    symbols = {it.symbol for it in facts.sources}
    for build in facts.builds:
        assert build.read in {"wheel", "table"}, build.source
        assert (build.read == "wheel") == build.source.endswith(".whl"), build.source
        assert set(build.indexes) <= symbols, build.indexes
        assert build.cpu or build.cuda, build.source


def test_documents_and_wheels_agree(facts):
    """Where both speak of the same build: the reader finds in the wheel what upstream's build script lists."""
    compared = 0
    for build in (it for it in facts.builds if it.read == "wheel" and not it.cpu):
        for other in facts.variants(build.package, build.version, machine=build.machine):
            if other.read == "table" and other.local == build.local:
                compared += 1
                assert (other.cuda, other.architectures) == (build.cuda, build.architectures), build.source
    assert compared > 20


def test_no_two_builds_are_for_the_same_question(facts):
    """Two entries for one version, label and machine would leave the answer to the order of the file."""
    keys = [(it.package, it.version, it.local, it.machine) for it in facts.builds]

    assert sorted(map(str, set(keys))) == sorted(map(str, keys))


def test_the_default_source_has_no_address(facts):
    """It is whatever uv is set up with on the node."""
    assert facts.source("default").url is None
    assert facts.source("pytorch-cu128").url == "https://download.pytorch.org/whl/cu128"
    assert facts.source("nowhere") is None


def test_every_fault_is_reported_at_once():
    """A maintainer mends a file in one go; each fault has its file and key."""
    with pytest.raises(MatrixError) as caught:
        parse_facts(
            {"toolkit": {"13.0": {"driver": 580.65, "floor": "580"}}},
            {"build": [{"package": "torch"}]},
            {"gpu": [{"name": "X1", "compute_capability": "9.0", "datacenter": "yes", "source": "here"}]},
            {"source": {"default": {}}},
        )

    said = "\n".join(caught.value.details)
    for part in (
        'cuda.toml: toolkit."13.0": driver: expected str, found float `580.65`',
        'cuda.toml: toolkit."13.0": unknown key `floor`',
        "torch.toml: build[0]: version: required, and missing",
        "gpus.toml: gpu[0]: datacenter: expected bool, found str `yes`",
        'mirrors.toml: source."default": where: required, and missing',
    ):
        assert part in said
