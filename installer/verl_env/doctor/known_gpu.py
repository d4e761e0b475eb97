"""Findings about who uses the GPUs, and whether they reach each other."""

from __future__ import annotations

from verl_env.doctor.kind import Known

GPU: dict[str, Known] = {
    "gpu-memory-held": Known(
        area="gpu",
        title="GPU memory is in use",
        why="vLLM takes a share of all memory, SGLang of what is free: what others hold is missing to it",
    ),
    "gpu-memory-unexplained": Known(
        area="gpu",
        title="GPU memory is in use, and no process that can be seen holds it",
        why="a dead job's memory, or a process of another container: nothing here can free it",
        request="Please see which process holds GPU memory on this node (nvidia-smi on the host), and end what is left "
        "over: {evidence}",
    ),
    "gpu-zombie": Known(
        area="gpu",
        title="a dead process still holds GPU memory",
        why="its memory comes back when its parent takes notice of its end, or ends itself",
    ),
    "gpu-exclusive": Known(
        area="gpu",
        title="a GPU takes one process only (exclusive or prohibited compute mode)",
        why="verl puts several processes on one GPU: trainer and inference engine share it",
        request="Please set the compute mode of these GPUs to Default: {evidence}",
    ),
    "p2p-missing": Known(
        area="gpu",
        title="GPUs of this node do not reach each other directly (no peer-to-peer)",
        why="tensor parallelism falls back to host memory; where NCCL believes otherwise, it hangs",
    ),
    "iommu-translates": Known(
        area="gpu",
        title="an IOMMU translates between GPUs",
        why="with translation and ACS, peer-to-peer writes between GPUs get lost, and NCCL hangs at start",
        request="Please set the IOMMU of this node to pass-through (kernel parameter iommu=pt), or switch ACS off for "
        "the GPUs' bridges: {evidence}",
    ),
    "mig-nccl": Known(
        area="gpu",
        title="a GPU is divided (MIG)",
        why="NCCL and peer-to-peer do not work across MIG devices: one process, one device, no tensor parallelism",
    ),
}
