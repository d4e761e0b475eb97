"""A Triton kernel: compiled here by Triton's own ptxas, launched through a stub that the C compiler builds."""

from __future__ import annotations

import os
import sys

if sys.argv[2:3] == ["cpu"]:
    os.environ["TRITON_INTERPRET"] = "1"  # read when a kernel is defined

import torch
import triton
import triton.language as tl
from expecting import expect_near
from kernel_torch import devices

SIZE, BLOCK = 256, 64


@triton.jit
def product_kernel(a, b, c, size: tl.constexpr, block: tl.constexpr):
    """One block of a product of matrices, with a ReLU at its end."""
    rows = tl.program_id(0) * block + tl.arange(0, block)
    columns = tl.program_id(1) * block + tl.arange(0, block)
    inner = tl.arange(0, block)
    total = tl.zeros((block, block), dtype=tl.float32)
    for start in range(0, size, block):
        left = tl.load(a + rows[:, None] * size + start + inner[None, :])
        right = tl.load(b + (start + inner)[:, None] * size + columns[None, :])
        total += tl.dot(left, right)
    tl.store(c + rows[:, None] * size + columns[None, :], tl.maximum(total, 0.0))


def product(on):
    """A product of matrices in float16 on every GPU."""
    generator = torch.Generator().manual_seed(2)
    a, b = (torch.randn(SIZE, SIZE, generator=generator).half() for _ in range(2))
    reference = (a.double() @ b.double()).clamp(min=0)
    places, kinds = devices(on)
    errors = []
    for place in places:
        if place.type == "cuda":
            torch.cuda.set_device(place)
        c = torch.empty(SIZE, SIZE, dtype=torch.float32, device=place)
        product_kernel[(SIZE // BLOCK, SIZE // BLOCK)](a.to(place), b.to(place), c, SIZE, BLOCK)
        errors.append(expect_near(reference, c, 1e-3, f"product on {place}"))
    return f"triton {triton.__version__}: off by {max(errors):.1e} on {kinds}"
