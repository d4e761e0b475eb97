"""How far a proof goes: real child processes in a real virtual environment, and a driver's libraries as stubs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tiny import MINOR
from verl_env.environment.prove import Subject, prove, prove_only, shown_by
from verl_env.errors import SmokeError, UsageError
from verl_env.matrix.device_code import BINARY, ENTRY, FATBIN, MAGIC, PTX
from verl_env.matrix.load import load_matrix
from verl_env.node.describe import describe

HERE = Path(__file__).parent
VERSION = "580.159.04"
# As much of torch as a check asks before it does anything.
TORCH = """
    class cuda:
        is_available = staticmethod(lambda: True)
        device_count = staticmethod(lambda: 1)
        get_device_name = staticmethod(lambda _: "NVIDIA H200")

    def device(*words):
        import os
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "0", os.environ["CUDA_VISIBLE_DEVICES"]
        assert os.environ["NCCL_NVLS_ENABLE"] == "0"
        return words

    bfloat16 = float16 = float32 = None
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return a virtual environment with a module that imports, and a place for logs."""
    made = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", made], check=True)
    write(made, "engine", "")
    monkeypatch.setenv("VERL_ENV_HOME", str(tmp_path / "home"))
    return made


def write(folder, module, text):
    """Put a module into an environment."""
    inside = folder / f"lib/python{MINOR}/site-packages" / module
    inside.mkdir(exist_ok=True)
    (inside / "__init__.py").write_text(textwrap.dedent(text))
    return inside


def fat_binary(*binaries, ptx=()):
    """Return a fat binary as the CUDA compiler lays it out, with empty code for each architecture."""
    kinds = [*((BINARY, arch) for arch in binaries), *((PTX, arch) for arch in ptx)]
    entries = b"".join(ENTRY.pack(kind, 0, ENTRY.size, 0, int(arch.replace(".", "")), 0) for kind, arch in kinds)
    return FATBIN.pack(MAGIC, 1, FATBIN.size, len(entries)) + entries


def write_device_code(folder, name, code):
    """Compile a library that carries device code into a package's folder, and write the package's metadata."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler, so no library with device code")
    packages = folder / f"lib/python{MINOR}/site-packages"
    (packages / name).mkdir(exist_ok=True)
    source = packages / name / "x.c"
    numbers = ",".join(map(str, code))
    source.write_text(f'__attribute__((section(".nv_fatbin"), aligned(8))) const unsigned char code[] = {{{numbers}}};')
    subprocess.run([compiler, "-shared", "-fPIC", "-o", packages / name / f"lib{name}_cuda.so", source], check=True)
    info = packages / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n\n")
    (info / "RECORD").write_text(f"{name}/__init__.py,,\n{name}/lib{name}_cuda.so,,\n")


def subject(folder, packages=(), cuda="13.0"):
    """Return what there is to prove of it."""
    versions = dict.fromkeys(packages, "1.0")
    return Subject(
        folder=folder, python=MINOR, cuda=cuda, imports=("engine",), packages=versions, settings=(), exports=()
    )


@pytest.fixture
def torch(folder):
    """Put a torch there that has code for the stub's GPU, and answers what a check asks first."""
    write(folder, "torch", TORCH)
    write_device_code(folder, "torch", fat_binary("8.0", "9.0"))


@pytest.fixture
def driver(tmp_path, monkeypatch):
    """Put stubs of libcuda and NVML where the loader finds them; return a function that says what NVML answers."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler, so no stub of the driver's libraries")
    place = tmp_path / "driver"
    place.mkdir()
    for source, name in (("test_doctor_nvml.c", "libnvidia-ml.so.1"), ("nvml_stub/cuda.c", "libcuda.so.1")):
        subprocess.run([compiler, "-w", "-shared", "-fPIC", "-o", place / name, HERE / source], check=True)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(place))
    return lambda wrong: monkeypatch.setenv("DOCTOR_NVML", wrong)


def test_it_stops_at_linkage_without_a_gpu(folder):
    """Kernels were asked for: what could be shown was, and what could not is said with the reason."""
    proof = prove(subject(folder, ["torch"]), "kernel", seconds=60)
    assert "linkage" == proof.level
    assert "" == proof.device
    assert ["imports", "linkage"] == [run.level for run in proof.runs]
    assert {"device": "CUDA shows no GPU", "kernel": "CUDA shows no GPU"} == proof.not_shown
    assert ("not shown: device: CUDA shows no GPU", "not shown: kernel: CUDA shows no GPU") == proof.notes


def test_a_set_for_the_cpu(folder, driver):
    """A GPU is here, and a CPU set has nothing to run on it."""
    driver("")
    proof = prove(subject(folder, cuda=None), "kernel", seconds=60)
    assert ("linkage", "a set for the CPU has no kernels") == (proof.level, proof.not_shown["kernel"])


def test_import_passes_and_its_extension_does_not(folder, tmp_path):
    """A package imports, and the extension that it loads later lacks a library: `linkage` catches it by name."""
    gone = tmp_path / "libgone.so.7"
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler, so no extension")
    (tmp_path / "x.c").write_text("int f(void) { return 1; }")
    words = [compiler, "-shared", "-fPIC", "-Wl,--no-as-needed", tmp_path / "x.c", "-o"]
    subprocess.run([*words, gone, "-Wl,-soname,libgone.so.7"], check=True)
    subprocess.run([*words, write(folder, "engine", "") / "_C.so", gone], check=True)

    assert ["imports"] == [run.level for run in prove(subject(folder), "imports", seconds=60).runs]
    with pytest.raises(SmokeError) as caught:
        prove(subject(folder), "linkage", seconds=60)

    assert "engine/_C.so needs libgone.so.7, which is nowhere" in caught.value.details[0]
    assert ["library-missing"] == [it["kind"] for it in caught.value.data["findings"]]
    assert [("imports", True), ("linkage", False)] == [(it["level"], it["passed"]) for it in caught.value.data["runs"]]


@pytest.mark.usefixtures("torch")
def test_a_busy_gpu_is_left_alone(folder, driver):
    """A GPU that somebody computes on is not touched, and the proof says who has it; its architecture can be judged."""
    driver(f"held {os.getpid()}")
    proof = prove(subject(folder, ["torch"]), "kernel", seconds=60)
    assert ("device", "NVIDIA H200 (9.0): torch have code for it") == (proof.level, proof.runs[-1].last_line)
    assert f"every GPU is in use: used by pid {os.getpid()} (75.2 GB)" == proof.not_shown["kernel"]


@pytest.mark.usefixtures("torch")
def test_a_failing_kernel_is_named(folder, driver):
    """A check that fails has its last line in the error; all checks ran, each on the GPU that is free."""
    driver("")
    with pytest.raises(SmokeError) as caught:
        prove(subject(folder, ["torch"]), "kernel", seconds=60)
    runs = {it["name"]: it for it in caught.value.data["runs"]}
    assert "has no attribute 'Generator'" in runs["torch_matmul"]["last_line"]
    assert "CUDA_VISIBLE_DEVICES" not in runs["p2p_copies"]["last_line"]
    assert (True, True) == (runs["p2p_copies"]["passed"], runs["p2p_copies"]["skipped"])


@pytest.mark.usefixtures("torch")
def test_skipped_is_not_shown(folder, driver):
    """With one GPU there is no pair: the check says so and counts for nothing."""
    driver("")
    proof = prove_only(subject(folder, ["torch"]), ("p2p_copies",), seconds=60)
    (run,) = proof.runs
    assert (None, "skipped", "one GPU, and so no pair") == (proof.level, run.word, run.last_line)
    assert f"NVIDIA H200, driver {VERSION}" == proof.device
    assert [(True, "one GPU, and so no pair")] == [(it.skipped, it.said) for it in shown_by(proof)]


@pytest.mark.usefixtures("torch")
def test_nothing_but_skipped_reaches_nothing(folder, driver):
    """flashinfer with no CUDA_HOME has nothing to show, and no level is reached by that."""
    driver("")
    write(folder, "flashinfer", "")
    proof = prove(subject(folder, ["flashinfer-python"]), "kernel", seconds=60)
    assert ("device", "no check of this set has anything to show") == (proof.level, proof.not_shown["kernel"])
    assert ["skipped", "skipped"] == [run.word for run in proof.runs if run.level == "kernel"]
    assert "CUDA_HOME is not set" in proof.runs[-1].last_line


def test_a_check_that_is_not_there(folder):
    """The answer names those that are."""
    with pytest.raises(UsageError) as caught:
        prove_only(subject(folder, ["ray"]), ("vllm_generates",), seconds=60)
    assert "name some of: ray_actor, ray_gpu_actor" == caught.value.hint


def test_a_check_that_hangs(folder, driver):
    """After its limit a check is ended, and that is what is said."""
    driver("")
    write(folder, "torch", "import time; time.sleep(600)")
    with pytest.raises(SmokeError) as caught:
        prove_only(subject(folder, ["torch"]), ("torch_matmul",), seconds=2)
    assert "torch_matmul: no end after 2 s" == caught.value.details[0]


def described(gpu, driver):
    """Return a node that somebody describes."""
    names = load_matrix(None).gpu_names()
    return describe(driver=driver, gpus=[gpu], compute_capabilities=[], glibc=None, machine="x86_64", names=names)


@pytest.mark.usefixtures("torch")
def test_code_for_a_described_gpu(folder):
    """A described GPU is held against the binaries; no kernel runs on it."""
    proof = prove(subject(folder), "kernel", seconds=60, node=described("h200", "580.95.05"))
    assert ("device", "") == (proof.level, proof.device)
    assert "H200 (9.0): torch have code for it" == proof.runs[-1].last_line
    assert {"kernel": "the GPUs are described, and not here"} == proof.not_shown


@pytest.mark.usefixtures("torch")
def test_no_code_for_this_gpu(folder):
    """A GPU that a package has no binary for is a fault: the package, the GPU and what there is are named."""
    write_device_code(folder, "engine", fat_binary("8.0", "8.6"))
    with pytest.raises(SmokeError) as caught:
        prove(subject(folder), "device", seconds=60, node=described("h200", "580.95.05"))
    assert "architectures: engine has no code for H200 (9.0); it has 8.0 8.6" == caught.value.details[0]


@pytest.mark.parametrize(
    ("driver_version", "runs"),
    [
        pytest.param("580.95.05", True, id="native: the driver compiles the toolkit's PTX"),
        pytest.param("525.60.13", False, id="minor-version: it does not"),
    ],
)
def test_ptx_needs_a_driver_that_compiles_it(folder, driver_version, runs):
    """PTX alone runs on a newer GPU where the driver carries the toolkit natively, and nowhere else."""
    write_device_code(folder, "engine", fat_binary("8.0", ptx=("8.0",)))
    proof = subject(folder, cuda="12.8")
    if runs:
        assert "device" == prove(proof, "device", seconds=60, node=described("h200", driver_version)).level
        return
    with pytest.raises(SmokeError) as caught:
        prove(proof, "device", seconds=60, node=described("h200", driver_version))
    assert "it has 8.0 PTX 8.0 (the driver does not compile PTX of this toolkit)" in caught.value.details[0]
