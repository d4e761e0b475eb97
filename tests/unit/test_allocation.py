"""Which GPUs a proof may use: what CUDA shows, less what others use, and never two MIG devices."""

from __future__ import annotations

import pytest

from verl_env.proof.allocation import allocate

UUIDS = ("aa" * 16, "bb" * 16, "cc" * 16)


def shown(*numbers, name="NVIDIA H200"):
    """Return devices as the libcuda child lists them."""
    return [
        {"index": at, "name": name, "uuid": UUIDS[number], "capability": [9, 0], "total": 150 << 30}
        for at, number in enumerate(numbers)
    ]


def used(**of):
    """Return what NVML says of the three GPUs, in its own order; `of` changes one by its letter."""
    gpus = []
    for letter, digits in zip("abc", UUIDS, strict=True):
        dashed = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
        idle = {"uuid": f"GPU-{dashed}", "total": 150 << 30, "used": 600 << 20, "owners": [], "mig": False}
        gpus.append(idle | of.get(letter, {}))
    return gpus


def tokens(found):
    return [it.token for it in found.devices]


def test_every_idle_gpu():
    """Without any setting all that CUDA shows are used, by CUDA's own numbers."""
    found = allocate({}, shown(0, 1, 2), used(), "580.159.04")
    assert ["0", "1", "2"] == tokens(found)
    assert {"CUDA_VISIBLE_DEVICES": "0,1,2"} == found.variables
    assert ("3x NVIDIA H200, driver 580.159.04", "") == (found.name, found.why_none)


@pytest.mark.parametrize(
    ("state", "said"),
    [
        pytest.param({"owners": [{"pid": 7, "used": 5 << 30, "graphics": False}]}, "pid 7 (5.4 GB)", id="a process"),
        pytest.param({"owners": [{"pid": 7, "used": 0, "graphics": False}]}, "pid 7", id="one of unknown size"),
        pytest.param({"used": 9 << 30}, "9.7 GB of 161.1 GB are taken", id="memory of one that is not seen"),
    ],
)
def test_busy_gpus_are_left_alone_aloud(state, said):
    """One that others use is named, with who uses it; the rest is used."""
    found = allocate({"CUDA_VISIBLE_DEVICES": "4,2"}, shown(0, 1), used(a=state))
    assert ["2"] == tokens(found)
    assert "GPU 4 (NVIDIA H200) is left alone: " in found.notes[0]
    assert said in found.notes[0]


def test_a_screen_is_no_use():
    """A display server holds little, and computes nothing."""
    owners = [{"pid": 9, "used": 50 << 20, "graphics": True}]
    assert ["0"] == tokens(allocate({}, shown(0), used(a={"owners": owners})))


def test_nothing_is_idle():
    """When all are in use, that is the reason, and there is nothing to use."""
    found = allocate({}, shown(1), used(b={"used": 100 << 30}))
    assert ([], True) == (tokens(found), found.why_none.startswith("every GPU is in use: "))


def test_order_is_cudas():
    """NVML's order is another: a device is known by its UUID."""
    found = allocate({"CUDA_VISIBLE_DEVICES": "GPU-cc,GPU-aa"}, shown(2, 0), used(c={"used": 100 << 30}))
    assert ["GPU-aa"] == tokens(found)


def test_slurm_says_which():
    """What Slurm gave counts where it does not hide the others."""
    environ = {"SLURM_JOB_ID": "5", "SLURM_JOB_GPUS": "1,2"}
    found = allocate(environ, shown(0, 1, 2), used())
    assert ["1", "2"] == tokens(found)
    assert ("GPU 0 is left alone: Slurm gave this job others",) == found.notes


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        pytest.param({"SLURM_JOB_ID": "5"}, "Slurm gave this job no GPU", id="a job without"),
        pytest.param({"CUDA_VISIBLE_DEVICES": ""}, "(CUDA_VISIBLE_DEVICES is ``)", id="hidden"),
        pytest.param({}, "CUDA shows no GPU", id="none here"),
    ],
)
def test_no_gpu_and_why(environ, said):
    """The reason is said, and no device is named."""
    found = allocate(environ, (), ())
    assert said in found.why_none
    assert "none" == found.name


def test_one_mig_device():
    """Of several MIG devices one is used: neither NCCL nor copies go from one to another."""
    found = allocate({}, shown(0, 1, name="NVIDIA H200 MIG 1g.18gb"), used(a={"uuid": "GPU-ff"}, b={"uuid": "GPU-fe"}))
    assert ["0"] == tokens(found)
    assert "one MIG device is used" in found.notes[0]


def test_without_nvml():
    """What is asked for is done, and what is not known is said."""
    found = allocate({}, shown(0), ())
    assert ["0"] == tokens(found)
    assert ("NVML does not answer: whether somebody else uses the GPUs is not known",) == found.notes
