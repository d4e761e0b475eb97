"""A row held against a node: which driver carries which toolkit, and which GPU runs which build."""

from __future__ import annotations

import pytest

from made import H200, compat_of, cpu_entry, entry_of, gpu_of, node_of
from verl_env.matrix.fit import driver_floor, fit_row
from verl_env.node.facts import Libcuda

CUDA13 = {"cuda": "13.0", "set": {"verl": "0.9.1", "torch": "2.11.0+cu130", "vllm": "0.24.0"}}
CUDA12 = {"cuda": "12.9", "set": {"verl": "0.7.1", "torch": "2.9.0", "vllm": "0.12.0"}}
CUDA11 = {"cuda": "11.8", "set": {"verl": "0.1", "torch": "2.6.0+cu118"}}


def fitted(entry, node, facts, *, for_cpu=False):
    """Hold the entry's first variant against the node."""
    return fit_row(entry, entry.pins[0] if entry.pins else None, node, facts, for_cpu=for_cpu)


@pytest.mark.parametrize(
    ("driver", "of_13", "of_12", "of_11"),
    [
        pytest.param("450.80.01", "rejected", "rejected", "rejected", id="below the floor of every CUDA 11"),
        pytest.param("470.82.01", "rejected", "rejected", "minor-version", id="CUDA 11.4's own: 11.8 by its major"),
        pytest.param("525.60.12", "rejected", "rejected", "native", id="one short of the floor of CUDA 12"),
        pytest.param("525.60.13", "rejected", "minor-version", "native", id="the floor of CUDA 12, exactly"),
        pytest.param("535.161.07", "rejected", "minor-version", "native", id="a long-lived branch of CUDA 12.2"),
        pytest.param("550.54.14", "rejected", "minor-version", "native", id="CUDA 12.4's own driver"),
        pytest.param("575.51.03", "rejected", "native", "native", id="CUDA 12.9's own driver"),
        pytest.param("579.99", "rejected", "native", "native", id="just below the branch of CUDA 13"),
        pytest.param("580.0", "minor-version", "native", "native", id="the first of the branch: not 13.0's own yet"),
        pytest.param("580.65.05", "minor-version", "native", "native", id="one short of 13.0's own"),
        pytest.param("580.65.06", "native", "native", "native", id="CUDA 13.0's own driver, exactly"),
        pytest.param("580.95.05", "native", "native", "native", id="a later one of the branch"),
        pytest.param("1000.1", "native", "native", "native", id="numbers, not text, are compared"),
    ],
)
def test_driver_rules(facts, driver, of_13, of_12, of_11):
    """Native from the toolkit's own driver, minor-version from its major's floor, else rejected."""
    node = node_of(driver, gpus=[H200])
    found = [fitted(entry_of(**row), node, facts).verdict for row in (CUDA13, CUDA12, CUDA11)]
    assert [of_13, of_12, of_11] == found


@pytest.mark.parametrize(
    ("capability", "of_13", "of_12"),
    [
        pytest.param("3.7", False, False, id="K80: neither compiles for Kepler"),
        pytest.param("6.1", False, False, id="P40: neither compiles for Pascal"),
        pytest.param("7.0", False, True, id="V100: CUDA 13 dropped Volta"),
        pytest.param("7.5", True, True, id="T4"),
        pytest.param("8.0", True, True, id="A100"),
        pytest.param("8.6", True, True, id="A10: vLLM 0.12 has 8.0, which runs on 8.6"),
        pytest.param("8.9", True, True, id="L40S"),
        pytest.param("9.0", True, True, id="H200"),
        pytest.param("10.0", True, True, id="B200"),
        pytest.param("10.3", True, True, id="B300: 10.0 runs on 10.3"),
        pytest.param("11.0", False, False, id="Thor: 10.0 does not run on another major"),
        pytest.param("12.0", True, True, id="RTX PRO 6000"),
    ],
)
def test_architectures(facts, capability, of_13, of_12):
    """Every compiled package of the set must have code for the GPU: same major, and not a newer minor."""
    node = node_of("580.95.05", gpus=[gpu_of(capability)])
    assert [of_13, of_12] == [fitted(entry_of(**row), node, facts).fits for row in (CUDA13, CUDA12)]


def test_rejection_names_package_gpu_and_what_it_has(facts):
    """The reason says which package, which GPU, and what was compiled."""
    node = node_of("580.95.05", gpus=[gpu_of("7.0", "Tesla V100-SXM2-32GB")])
    reasons = fitted(entry_of(**CUDA13), node, facts).reasons
    assert 2 == len(reasons)
    assert reasons[0].startswith(
        "torch 2.11.0+cu130 has no code for Tesla V100-SXM2-32GB (compute capability 7.0; it has 7.5 "
    )
    assert reasons[1].startswith("vllm 0.24.0 has no code for Tesla V100-SXM2-32GB")


@pytest.mark.parametrize(
    ("capabilities", "fits"),
    [
        pytest.param(["9.0", "9.0"], True, id="alike"),
        pytest.param(["8.0", "9.0"], True, id="both compiled for"),
        pytest.param(["9.0", "7.0"], False, id="one too old"),
        pytest.param(["7.0", "9.0"], False, id="one too old, in the other order"),
    ],
)
def test_mixed_gpus_must_all_fit(facts, capabilities, fits):
    """A job may land on any of a node's GPUs."""
    node = node_of("580.95.05", gpus=[gpu_of(it) for it in capabilities])
    assert fits == fitted(entry_of(**CUDA13), node, facts).fits


def test_unknown_capability_is_not_guessed(facts):
    """A GPU of unknown compute capability rejects the row, by name."""
    found = fitted(entry_of(**CUDA13), node_of("580.95.05", gpus=[gpu_of(None, "NVIDIA X")]), facts)
    assert "the compute capability of `NVIDIA X` is not known" in found.reasons


def test_unknown_build_is_not_guessed(facts):
    """A torch whose architectures nobody read rejects the row."""
    entry = entry_of(cuda="13.0", set={"verl": "0.9.1", "torch": "99.1.0"})
    found = fitted(entry, node_of("580.95.05", gpus=[H200]), facts)
    assert ("which architectures torch 99.1.0 was compiled for is not known",) == found.reasons


def test_no_gpu_named_is_said(facts):
    """With a driver alone, architectures are not compared, and that is noted."""
    found = fitted(entry_of(**CUDA13), node_of("580.95.05"), facts)
    assert (True, True) == (found.fits, "no GPU is named, so compiled architectures were not compared" in found.notes)


@pytest.mark.parametrize(
    ("needed", "has", "fits"),
    [
        pytest.param("2.28", "2.28", True, id="equal"),
        pytest.param("2.31", "2.28", False, id="too old"),
        pytest.param("2.9", "2.31", True, id="numbers, not text"),
        pytest.param("2.31", "2.4", False, id="numbers, not text, the other way"),
        pytest.param(None, "2.4", True, id="no wheel states one"),
        pytest.param("2.31", None, True, id="the node's is not known: noted, not guessed"),
    ],
)
def test_glibc(facts, needed, has, fits):
    """The floor of the pins' platform tags against the node's glibc."""
    found = fitted(cpu_entry(glibc=needed), node_of(glibc=has), facts, for_cpu=True)
    assert fits == found.fits
    assert (needed is not None and has is None) == any("glibc" in note for note in found.notes)


def test_glibc_reason_has_both_numbers(facts):
    """What is needed, why, and what is here."""
    found = fitted(cpu_entry(glibc="2.31"), node_of(glibc="2.28"), facts, for_cpu=True)
    assert ("needs glibc >= 2.31 (the platform tags of its wheels); this node has 2.28",) == found.reasons


def test_architecture_of_the_machine(facts):
    """A row for x86_64 falls on aarch64, by name."""
    found = fitted(cpu_entry(), node_of(machine="aarch64"), facts, for_cpu=True)
    assert ("made for x86_64; this node is aarch64",) == found.reasons


@pytest.mark.parametrize(
    ("cuda", "api", "verdict"),
    [
        pytest.param("13.0", "13.0", "forward-compat", id="answers the row's CUDA"),
        pytest.param("13.0", "13.1", "forward-compat", id="answers a newer one"),
        pytest.param("13.1", "13.0", "forward-compat", id="same major, older: PTX is noted"),
        pytest.param("13.0", "12.9", "rejected", id="another major"),
        pytest.param("12.9", "13.0", "forward-compat", id="an older toolkit on a newer libcuda"),
    ],
)
def test_compat_libcuda_in_place(facts, cuda, api, verdict):
    """A cuda-compat libcuda that works decides by what it answers, whatever the kernel driver is."""
    node = node_of("535.161.07", gpus=[H200], libcuda=compat_of(api))
    assert verdict == fitted(entry_of(**(CUDA13 | {"cuda": cuda})), node, facts).verdict


def test_compat_libcuda_that_does_not_work(facts):
    """A compat libcuda that fails to start is a reason, with its own words."""
    node = node_of("470.82.01", gpus=[H200], libcuda=compat_of("13.0", works=False, error="error 803"))
    found = fitted(entry_of(**CUDA13), node, facts)
    assert ("the CUDA driver does not start: error 803",) == found.reasons


def test_broken_driver_is_said(facts):
    """An ordinary libcuda that does not start rejects every GPU row."""
    broken = Libcuda(path="/lib/libcuda.so.1", source="tests", works=False, error="CUDA_ERROR_NO_DEVICE")
    found = fitted(entry_of(**CUDA13), node_of("580.95.05", gpus=[H200], libcuda=broken), facts)
    assert ("the CUDA driver does not start: CUDA_ERROR_NO_DEVICE",) == found.reasons


@pytest.mark.parametrize(
    ("driver", "gpu", "said"),
    [
        pytest.param("535.161.07", gpu_of("8.0", "A100"), True, id="a listed branch and a datacenter GPU"),
        pytest.param("535.161.07", gpu_of("8.6", "RTX 3090"), False, id="compat packages are for datacenter GPUs"),
        pytest.param("470.82.01", gpu_of("8.0", "A100"), False, id="a branch that is not listed for 13.0"),
        pytest.param("535.161.07", gpu_of("8.0", "Nobody's GPU"), False, id="a GPU of unknown kind"),
    ],
)
def test_forward_compat_is_offered_where_nvidia_lists_it(facts, driver, gpu, said):
    """What an administrator could install is named; it is never chosen silently."""
    found = fitted(entry_of(**CUDA13), node_of(driver, gpus=[gpu]), facts)
    assert (False, said) == (found.fits, "cuda-compat-13-0" in " ".join(found.reasons))


def test_no_driver(facts):
    """Without a driver the row says which it needs."""
    found = fitted(entry_of(**CUDA12), node_of(gpus=[H200]), facts)
    assert ("needs an NVIDIA driver >= 525.60.13; none is loaded",) == found.reasons
    assert "525.60.13" == found.driver_needed


def test_toolkit_that_nobody_knows(facts):
    """A CUDA that the facts do not have rejects, and is not guessed from its neighbours."""
    found = fitted(entry_of(**(CUDA13 | {"cuda": "99.0"})), node_of("580.95.05", gpus=[H200]), facts)
    assert "the driver that CUDA 99.0 needs is not known" in found.reasons


@pytest.mark.parametrize(
    ("entry", "for_cpu", "fits"),
    [
        pytest.param(cpu_entry(), True, True, id="a CPU row for CPU work"),
        pytest.param(cpu_entry(), False, False, id="a CPU row for a GPU"),
        pytest.param(entry_of(**CUDA13), True, False, id="a GPU row for CPU work"),
        pytest.param(entry_of(**CUDA13), False, True, id="a GPU row for a GPU"),
    ],
)
def test_kinds_of_work(facts, entry, for_cpu, fits):
    """CPU rows are for CPU work and GPU rows for GPUs, whatever is here."""
    assert fits == fitted(entry, node_of("580.95.05", gpus=[H200]), facts, for_cpu=for_cpu).fits


def test_broken_rows_fall(facts):
    """A row that is known to be broken falls with its reason."""
    found = fitted(cpu_entry(broken="it dies at import"), node_of(), facts, for_cpu=True)
    assert ("known broken: it dies at import",) == found.reasons


def test_minor_version_fit_says_what_it_costs(facts):
    """The note names the toolkit, the driver, and PTX."""
    (note,) = fitted(entry_of(**CUDA12), node_of("550.54.15", gpus=[H200]), facts).notes
    assert note == (
        "CUDA 12.9 runs on driver 550.54.15 by minor-version compatibility (its own driver is 575.51.03): "
        "PTX of a newer minor does not compile"
    )


@pytest.mark.parametrize(
    ("cuda", "floor"),
    [
        pytest.param("13.0", "580", id="the major's floor"),
        pytest.param("12.9", "525.60.13", id="CUDA 12"),
        pytest.param("99.0", None, id="not known"),
        pytest.param(None, None, id="CPU"),
    ],
)
def test_driver_floor(facts, cuda, floor):
    """The oldest driver that carries a toolkit without cuda-compat."""
    assert floor == driver_floor(cuda, facts)
