"""Each rule of coherence: what it refuses, what it lets pass, and what it says."""

from __future__ import annotations

import pytest

from verl_env.lock.coherence import RULES, Package, find_incoherences, unknown_rules, without_allowed


def packages(*specs, **more) -> tuple[Package, ...]:
    """Return packages written as `name==version`."""
    found = [Package(name=spec.partition("==")[0], version=spec.partition("==")[2] or None) for spec in specs]
    return (*found, *more.get("also", ()))


def rules_of(every, **options) -> list[str]:
    """Return the ids of the rules that speak."""
    return [it.rule for it in find_incoherences(every, **options)]


CU12 = ("nvidia-cuda-runtime-cu12==12.8.90", "nvidia-cublas-cu12==12.8.4.1")


@pytest.mark.parametrize(
    ("every", "rule"),
    [
        pytest.param(packages("torch==2.6.0+cu118", *CU12), "two-cuda-majors", id="label and names"),
        pytest.param(packages("cupy-cuda11x==13.0", *CU12), "two-cuda-majors", id="cupy"),
        pytest.param(packages("nvidia-cuda-runtime==13.0.96", *CU12), "two-cuda-majors", id="CUDA 13 has no suffix"),
        pytest.param(packages("cuda-python==13.0.3", *CU12), "cuda-bindings-major", id="bindings"),
        pytest.param(
            packages("nvidia-cuda-nvcc==13.5.37", "nvidia-cuda-runtime==13.0.96"), "nvcc-minor", id="today's verl vllm"
        ),
        pytest.param(
            packages("nvidia-cuda-cccl-cu12==12.9.27", "nvidia-cuda-runtime-cu12==12.8.90"), "nvcc-minor", id="headers"
        ),
        pytest.param(packages("torch==2.9.0+cpu", *CU12), "cpu-torch-beside-cuda", id="CPU torch"),
        pytest.param(packages("torch==2.9.0+cpu", "flash-attn==2.8.3"), "cpu-torch-beside-cuda", id="CPU, flash-attn"),
        pytest.param(packages("torch==2.11.0", "torchvision==0.25.0"), "torch-family", id="torchvision"),
        pytest.param(packages("torch==2.5.1", "torchvision==0.20.0"), "torch-family", id="torchvision's patch"),
        pytest.param(packages("torch==2.7.0", "torchaudio==2.6.0"), "torch-family", id="torchaudio"),
        pytest.param(packages("torch==2.8.0+cu128", "torchaudio==2.8.0+cu126"), "torch-family", id="other builds"),
        pytest.param(
            packages("torch==2.8.0.dev20250527", "torchvision==0.22.0.dev20250520"), "torch-family", id="nightlies"
        ),
        pytest.param(packages("torch==2.10.0", "torchaudio==2.11.0"), "torch-family", id="torchaudio 2.11 is newer"),
        pytest.param(packages("vllm==0.9.0", "torch==2.8.0"), "engine-torch", id="vLLM"),
        pytest.param(packages("sglang==0.4.4.post4", "torch==2.8.0"), "engine-torch", id="SGLang"),
        pytest.param(
            packages("flashinfer==0.1.6+cu124torch2.4", "torch==2.5.1+cu124"), "built-for-another-torch", id="label"
        ),
        pytest.param(
            packages("flash-attn==2.7.4.post1+cu12torch2.8cxx11abifalse", "torch==2.8.0"),
            "built-for-another-torch",
            id="old ABI",
        ),
        pytest.param(
            packages("flashinfer-python==0.6.12", "flashinfer-cubin==0.6.11"), "flashinfer-versions", id="flashinfer"
        ),
        pytest.param(packages("apex==0.9.10.dev0"), "wrong-project", id="web toolkit"),
        pytest.param(packages("nvidia-cuda-nvcc-cu13==0.0.1"), "wrong-project", id="held name"),
        pytest.param(packages("torchaudio==2.3.0", "torchaudio==2.3.1"), "duplicate-package", id="two versions"),
        pytest.param(packages("pytorch-triton==3.3.1", "triton==3.3.0"), "path-clash", id="one module, two packages"),
    ],
)
def test_a_rule_speaks(every, rule):
    """What does not stand together is found, once, by the rule that is about it."""
    assert [rule] == rules_of(every)


@pytest.mark.parametrize(
    "every",
    [
        pytest.param(packages("torch==2.11.0", "torchvision==0.26.0", "torchaudio==2.11.0"), id="torch 2.11"),
        pytest.param(packages("torch==2.13.0", "torchvision==0.28.0", "torchaudio==2.11.0"), id="audio stays at 2.11"),
        pytest.param(packages("torch==2.15.0", "torchvision==0.29.2"), id="torchvision 0.29.2"),
        pytest.param(packages("torch==2.9.1", "torchvision==0.24.1", "vllm==0.15.0"), id="vLLM 0.15"),
        pytest.param(packages("torch==2.6.0+cu124", "nvidia-cublas-cu12==12.4.5.8"), id="one major"),
        pytest.param(packages("torch==2.13.0+cpu", "cuda-bindings==13.5.0"), id="bindings beside CPU torch"),
        pytest.param(packages("nvidia-ml-py==13.615.71", *CU12), id="NVML's bindings are of the driver"),
        pytest.param(packages("nvidia-nvjitlink==13.5.37", "nvidia-cuda-runtime==13.0.96"), id="newer nvjitlink"),
        pytest.param(packages("flashinfer-python==0.6.12", "flashinfer-jit-cache==0.6.12+cu130"), id="label aside"),
        pytest.param(packages("vllm==0.5.5.20250604", "torch==2.7.1"), id="a vendor's own build"),
        pytest.param(packages("vllm==0.7.4.dev254", "torch==2.8.0"), id="built from source"),
        pytest.param(packages("apex==0.1"), id="NVIDIA's apex"),
        pytest.param(packages("torch", "vllm", "numpy==2.0"), id="no versions, nothing to judge"),
        pytest.param(packages("torch==not.a.version"), id="no PEP 440 version"),
        pytest.param((), id="nothing"),
    ],
)
def test_no_rule_speaks(every):
    """What belongs together is let pass."""
    assert [] == rules_of(every)


def test_facts_know_a_build_without_a_label(facts):
    """The default index's vLLM 0.24.0 is built for CUDA 13: beside torch for CUDA 12 it finds no libcudart."""
    found = find_incoherences(packages("torch==2.11.0+cu126", "vllm==0.24.0"), facts=facts)
    assert ["two-cuda-majors"] == [it.rule for it in found]
    assert ("vllm",) == found[0].packages


def test_an_artifact_without_a_hash():
    """A file that no hash vouches for is named; a list that names no files is not judged."""
    every = (
        Package(name="a", version="1", files=("a-1-py3-none-any.whl",), hashed=False),
        Package(name="b", version="1", hashed=None),
    )
    (found,) = find_incoherences(every)
    assert ("artifact-without-hash", ("a",)) == (found.rule, found.packages)


@pytest.mark.parametrize(
    ("file", "python", "found"),
    [
        pytest.param("x-1-cp310-cp310-linux_x86_64.whl", "3.12", ["wheel-for-another-python"], id="older"),
        pytest.param("x-1-cp313-cp313-linux_x86_64.whl", "3.12", ["wheel-for-another-python"], id="newer"),
        pytest.param("x-1-cp312-cp312-linux_x86_64.whl", "3.12", [], id="own"),
        pytest.param("x-1-cp38-abi3-linux_x86_64.whl", "3.12", [], id="abi3"),
        pytest.param("x-1-py2.py3-none-any.whl", "3.12", [], id="pure"),
        pytest.param("x-1-cp310-cp310-linux_x86_64.whl", None, [], id="Python not known"),
        pytest.param("x-1.tar.gz", "3.12", [], id="sdist"),
    ],
)
def test_wheels_of_another_python(file, python, found):
    """A wheel names the Python it is for."""
    assert found == rules_of((Package(name="x", version="1", files=(file,), hashed=True),), python=python)


def test_contents_decide_a_clash():
    """Two packages at one path clash by what they put there."""
    one = Package(name="a", version="1", contents={"nvidia/__init__.py": "00", "x.py": "01"})
    same = Package(name="b", version="1", contents={"nvidia/__init__.py": "00"})
    other = Package(name="c", version="1", contents={"x.py": "02"})
    assert [] == rules_of((one, same))
    (found,) = find_incoherences((one, same, other))
    assert ("path-clash", ("a", "c")) == (found.rule, found.packages)


def test_requirements_are_held_against_the_set():
    """Markers and extras that do not apply are left alone."""
    wants = ("numpy<2", "idna; sys_platform == 'win32'", "ruff; extra == 'dev'", "nonsense ===")
    every = (
        Package(name="a", version="1", requires=wants),
        Package(name="numpy", version="2.1.0"),
    )
    (found,) = find_incoherences(every, python="3.12")
    assert ("requirement-broken", "a 1 wants numpy<2, and the set has numpy 2.1.0") == (found.rule, found.what)


def test_the_locks_cuda_is_compared():
    """A lock for CUDA 13.0 of CUDA 12 packages states the wrong driver."""
    assert ["other-cuda"] == rules_of(packages(*CU12), cuda="13.0")
    assert [] == rules_of(packages(*CU12), cuda="12.9")


def test_a_rule_is_set_aside_by_name():
    """What is allowed is still reported, apart."""
    found = find_incoherences(packages("torch==2.7.0", "torchaudio==2.6.0", "apex==0.9.10.dev0"))
    refused, allowed = without_allowed(found, {"torch-family"})
    assert (["wrong-project"], ["torch-family"]) == ([it.rule for it in refused], [it.rule for it in allowed])
    assert ("nonsense",) == unknown_rules({"nonsense", "torch-family"})


def test_every_rule_says_what_to_write():
    """Why and remedy are never empty, and rules are reported in their own order."""
    every = packages("torch==2.6.0+cu118", "torchaudio==2.5.0", "apex==0.9.10.dev0", "vllm==0.9.0", *CU12)
    found = find_incoherences(every)
    assert all(it.what and it.why and it.remedy and it.packages for it in found)
    order = [list(RULES).index(it.rule) for it in found]
    assert sorted(order) == order


def test_shipped_pins_hold_together(shipped):
    """Whatever the rules say of a shipped row, the row has an allowance for."""
    from verl_env.lock.coherence import package_of
    from verl_env.matrix.load import load_pins

    for entry in shipped.entries.values():
        allowed = {it.rule for it in entry.row.allow}
        for header in entry.pins:
            every = [package_of(it) for it in load_pins(entry, header).pins]
            found = find_incoherences(
                every, cuda=entry.row.cuda, python=header.python, machine=header.arch, facts=shipped.facts
            )
            refused, _ = without_allowed(found, allowed | {"cuda-bindings-major"})
            assert [] == [(header.file_name, it.rule, it.what) for it in refused]
