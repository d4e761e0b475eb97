"""Ray actors that each see a GPU of their own."""

from __future__ import annotations

import os

from expecting import expect
from kernel_torch import devices


def actor(on):
    """One actor a GPU: it gets a GPU that no other has, and computes on it."""
    if on == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = "0"  # Ray hands out what is named there, and looks no further
    import ray

    places, kinds = devices(on)
    options = {} if on == "cuda" else {"num_gpus": len(places)}  # Ray counts the GPUs by itself
    # "local": a cluster that runs on this machine is not joined, and not disturbed
    ray.init(address="local", num_cpus=len(places), include_dashboard=False, log_to_driver=False, **options)
    expect(len(places), int(ray.cluster_resources().get("GPU", 0)), "GPUs that Ray counts")

    @ray.remote(num_gpus=1, num_cpus=1)
    class Holder:
        def compute(self, on):
            import torch

            place = torch.device("cuda", 0) if on == "cuda" else torch.device("cpu")
            values = torch.arange(1000, device=place, dtype=torch.float32)
            visible = torch.cuda.device_count() if on == "cuda" else 1
            return ray.get_gpu_ids(), visible, float(values.sum())

    holders = [Holder.remote() for _ in places]
    answers = ray.get([holder.compute.remote(on) for holder in holders], timeout=240)
    expect([(1, 499500.0)] * len(places), [(seen, total) for _, seen, total in answers], "GPUs seen, and a sum")
    ids = [str(own) for (own,), _, _ in answers]
    expect(len(places), len(set(ids)), "different GPUs")
    ray.shutdown()
    return f"ray {ray.__version__}: {len(places)} actors, GPU {', '.join(sorted(ids))} of {kinds}"
