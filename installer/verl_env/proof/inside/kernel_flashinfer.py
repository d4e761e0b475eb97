"""flashinfer's attention against float64 on the CPU; its kernels are compiled here, with the exported CUDA_HOME."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from expecting import Skip, expect_near
from kernel_torch import devices, types_of

HEADS, KV_HEADS, SIZE, PAGE = 8, 2, 128, 16
LIMIT = 2e-2


def decode(on):
    """One new token against a cache: alone, and in a batch with a paged cache, as engines do it."""
    import flashinfer
    import torch

    place, dtype = _place(on)
    before = _modules()
    q, k, v = _parts(1, 300, dtype)
    errors = [
        expect_near(
            reference(q, k, v),
            flashinfer.single_decode_with_kv_cache(q[0].to(place), k.to(place), v.to(place))[None],
            LIMIT,
            "single decode",
        )
    ]
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(
        torch.zeros(128 << 20, dtype=torch.uint8, device=place), "NHD"
    )
    lengths = (PAGE * 3 - 5, PAGE * 7)
    batch = [_parts(1, length, dtype) for length in lengths]
    cache, tables = paged([(k, v) for _, k, v in batch])
    tables = [table.to(place) for table in tables]
    wrapper.plan(*tables, HEADS, KV_HEADS, SIZE, PAGE, q_data_type=dtype, data_type=dtype)
    found = wrapper.run(torch.cat([q for q, _, _ in batch]).to(place), tuple(part.to(place) for part in cache))
    errors += [
        expect_near(reference(*parts), found[number : number + 1], LIMIT, f"paged decode of {lengths[number]} tokens")
        for number, parts in enumerate(batch)
    ]
    return f"off by {max(errors):.1e}; {_built(before)}"


def prefill(on):
    """A prompt, causal, of which the first part is in the cache already."""
    import flashinfer

    place, dtype = _place(on)
    before = _modules()
    q, k, v = _parts(160, 300, dtype)
    found = flashinfer.single_prefill_with_kv_cache(q.to(place), k.to(place), v.to(place), causal=True)
    return f"off by {expect_near(reference(q, k, v), found, LIMIT, 'prefill'):.1e}; {_built(before)}"


def _place(on):
    """Return the first GPU and the type to use there; compiling needs nvcc, and CUDA_HOME says which."""
    import torch

    if not os.environ.get("CUDA_HOME"):
        raise Skip("CUDA_HOME is not set: this environment has no nvcc to compile flashinfer's kernels with")
    place = devices(on)[0][0]
    torch.manual_seed(3)
    return place, getattr(torch, types_of(place)[-1])


def _parts(queries, length, dtype):
    """Return q, k and v of one sequence: tokens, heads, dimensions."""
    import torch

    return (
        torch.randn(queries, HEADS, SIZE).to(dtype),
        torch.randn(length, KV_HEADS, SIZE).to(dtype),
        torch.randn(length, KV_HEADS, SIZE).to(dtype),
    )


def reference(q, k, v):
    """Return attention in float64 on the CPU; the last query sees all of k, each one before sees one token less."""
    import torch

    q, k, v = (part.double() for part in (q, k, v))
    k, v = (part.repeat_interleave(HEADS // KV_HEADS, dim=1) for part in (k, v))
    scores = torch.einsum("qhd,khd->hqk", q, k) / SIZE**0.5
    behind = torch.arange(len(k))[None, :] - torch.arange(len(q))[:, None] > len(k) - len(q)
    weights = scores.masked_fill(behind, float("-inf")).softmax(-1)
    return torch.einsum("hqk,khd->qhd", weights, v)


def paged(sequences):
    """Lay sequences into pages, out of order; return the caches of k and v, and the tables that find the pages."""
    import torch

    counts = [-(-len(k) // PAGE) for k, _ in sequences]
    order = torch.randperm(sum(counts), dtype=torch.int32)
    caches = [torch.zeros(sum(counts), PAGE, KV_HEADS, SIZE, dtype=sequences[0][0].dtype) for _ in range(2)]
    first = 0
    for number, parts in enumerate(sequences):
        pages = order[first : first + counts[number]]
        for cache, part in zip(caches, parts, strict=True):
            for place, page in enumerate(pages.tolist()):
                rows = part[place * PAGE : (place + 1) * PAGE]
                cache[page, : len(rows)] = rows
        first += counts[number]
    starts = torch.tensor([0, *torch.tensor(counts).cumsum(0).tolist()], dtype=torch.int32)
    last = torch.tensor([(len(k) - 1) % PAGE + 1 for k, _ in sequences], dtype=torch.int32)
    return caches, [starts, order, last]


def _modules():
    """Return the modules that were compiled so far; the cache was empty when the proof began."""
    return {it.stem for it in Path(os.environ["FLASHINFER_WORKSPACE_BASE"]).rglob("*.so")}


def _built(before):
    """Say what was compiled by this check, and by whose nvcc; no path of this machine."""
    import flashinfer

    kinds = ", ".join(sorted({name.partition("_dtype_")[0] for name in _modules() - before}))
    whose = "the environment" if os.environ["CUDA_HOME"].startswith(sys.prefix) else "the system"
    how = f"compiled {kinds} with {whose}'s CUDA_HOME" if kinds else "its kernels came compiled"
    return f"flashinfer {flashinfer.__version__}, {how}"
