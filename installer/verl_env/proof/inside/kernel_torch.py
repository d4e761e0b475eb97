"""torch's own kernels: products and attention, against float64 on the CPU."""

from __future__ import annotations

from expecting import CheckError, Skip, expect_near

# Relative to the norm of the result. One rounding of it is 2^-9/√3 for bfloat16 and 2^-12/√3 for float16; ten of them
# are allowed, and a wrong kernel is off by about 1.
LIMITS = {"float32": 1e-4, "float16": 2e-3, "bfloat16": 1e-2}
ATTENTION_LIMIT = 5e-2  # its weights and their gradients are rounded on the way too
SIZE = 1024
# How torch says that a kernel is not there for these inputs; cuDNN says it in its own words.
NO_KERNEL = ("No available kernel", "No viable backend", "No execution plans", "No valid execution plans")


def devices(on):
    """Return the torch devices to work on, with what to call them; fails when CUDA was asked for and is not there."""
    import torch

    if on == "cpu":
        return [torch.device("cpu")], "the CPU"
    if not torch.cuda.is_available():
        torch.cuda.init()  # says why
        raise CheckError("torch sees no GPU")
    names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    kinds = ", ".join(f"{names.count(name)}x {name}" for name in dict.fromkeys(names))
    return [torch.device("cuda", index) for index in range(len(names))], kinds


def types_of(device):
    """Return the types that a device computes in; bfloat16 is Ampere's and later."""
    import torch

    if device.type == "cuda" and torch.cuda.get_device_capability(device) < (8, 0):
        return ("float32", "float16")
    return tuple(LIMITS)


def matmul(on):
    """Products of matrices, on every GPU, in the types that training uses."""
    import torch

    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(SIZE, SIZE, generator=generator) for _ in range(2))
    places, kinds = devices(on)
    worst = {}
    for place in places:
        for name in types_of(place):
            dtype = getattr(torch, name)
            rounded = a.to(dtype), b.to(dtype)
            product = rounded[0].to(place) @ rounded[1].to(place)
            reference = rounded[0].double() @ rounded[1].double()
            error = expect_near(reference, product, LIMITS[name], f"{name} product on {place}")
            worst[name] = max(error, worst.get(name, 0.0))
    return f"{', '.join(f'{name} off by {error:.1e}' for name, error in worst.items())} on {kinds}"


def attention(on):
    """Scaled dot product attention, causal, forward and backward, by each of torch's kernels that is there."""
    from torch.nn.attention import SDPBackend

    places, kinds = devices(on)
    said, fused = [], 0
    for name in ("MATH", "FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION"):
        backend = getattr(SDPBackend, name, None)
        errors = [error for place in places if backend is not None and (error := _by(backend, place)) is not None]
        if not errors:
            said.append(f"no {name.lower()}")
            continue
        fused += name != "MATH"
        said.append(f"{name.lower()} off by {max(errors):.1e}")
    if not fused:
        raise CheckError(f"only plain attention works: {', '.join(said)}")
    return f"{', '.join(said)} on {kinds}"


def _by(backend, place):
    """Return one kernel's error against float64, or None where torch has no such kernel for this device."""
    import torch
    from torch.nn.attention import sdpa_kernel

    dtype = torch.float32 if place.type == "cpu" else getattr(torch, types_of(place)[-1])
    generator = torch.Generator().manual_seed(1)
    parts = [torch.randn(2, 4, 256, 64, generator=generator).to(dtype) for _ in range(3)]
    reference = _attend(*(part.double() for part in parts))
    with sdpa_kernel([backend]):
        try:
            found = _attend(*(part.to(place) for part in parts))
        except RuntimeError as err:
            if any(words in str(err) for words in NO_KERNEL):
                return None
            raise
    what = ("output", "gradient of q", "gradient of k", "gradient of v")
    return max(
        expect_near(right, here, ATTENTION_LIMIT, f"{backend.name}, {word} on {place}")
        for right, here, word in zip(reference, found, what, strict=True)
    )


def _attend(*parts):
    """Return attention's output and the gradients of its sum of squares."""
    import torch

    q, k, v = (part.clone().requires_grad_() for part in parts)
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    out.float().pow(2).sum().backward() if out.dtype != torch.float64 else out.pow(2).sum().backward()
    return out.detach(), q.grad, k.grad, v.grad


def copies(on, pynvml_path=""):
    """Peer-to-peer copies between each pair of GPUs, compared, with what NVML says of the pair and its links."""
    import torch

    places, _ = devices(on)
    if len(places) == 1:
        raise Skip("one GPU, and so no pair")
    from links import describe_links

    nvml = describe_links(pynvml_path)
    said = []
    for source in places:
        for target in places:
            if source != target:
                speed = _copied(source, target)
                peer = torch.cuda.can_device_access_peer(source, target)
                said.append(f"{source.index}->{target.index} {speed:.0f} GB/s{'' if peer else ' (through the host)'}")
    return f"{', '.join(said)}; {nvml}"


def _copied(source, target, size=1 << 28):
    """Copy random bytes, compare them on the CPU, and return the GB/s of copies after the first."""
    import torch

    torch.cuda.set_device(source)
    sent = torch.randint(0, 256, (size,), dtype=torch.uint8, device=source)
    arrived = torch.zeros(size, dtype=torch.uint8, device=target)
    arrived.copy_(sent)
    torch.cuda.synchronize(source)
    torch.cuda.synchronize(target)
    if not torch.equal(sent.cpu(), arrived.cpu()):
        wrong = int((sent.cpu() != arrived.cpu()).sum())
        raise CheckError(f"{wrong} of {size} bytes from GPU {source.index} to {target.index} arrived changed")
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(10):
        arrived.copy_(sent, non_blocking=True)
    end.record()
    torch.cuda.synchronize(source)
    torch.cuda.synchronize(target)
    return 10 * size / (start.elapsed_time(end) / 1e3) / 1e9
