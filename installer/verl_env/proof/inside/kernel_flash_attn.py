"""flash-attn, forward and backward, against float64 on the CPU and against torch's attention on the GPU."""

from __future__ import annotations

from itertools import pairwise

from expecting import CheckError, Skip, expect_near
from kernel_torch import devices, types_of

HEADS, KV_HEADS = 8, 2
SIZES = (64, 128, 256)  # of a head: each is compiled from files of its own
LENGTHS = (160, 33, 300)  # of the sequences in a packed batch
LIMIT = 2e-2
CLOSE = 2  # times torch's own distance from float64, and a rounding
WHAT = ("output", "gradient of q", "gradient of k", "gradient of v")


def dense(on):
    """One batch of sequences of one length, causal and not, with grouped heads, in every size of a head."""
    worst = 0.0
    place, types, _ = _place(on)
    for name in types:
        for size in SIZES:
            for causal in (True, False):
                parts = _parts(2, 200, size, name)
                theirs = _through(lambda *each, causal=causal: _torch(*each, causal=causal), parts, place)
                ours = _through(lambda *each, causal=causal: _flash(on, *each, causal=causal), parts, place)
                exact = _through(
                    lambda *each, causal=causal: _torch(*each, causal=causal), [it.double() for it in parts], "cpu"
                )
                worst = max(worst, _compare(exact, theirs, ours, f"{name}, heads of {size}, causal {causal}"))
    return f"off by {worst:.1e} at most in {', '.join(types)}, forward and backward, as near as torch's; {_version(on)}"


def packed(on):
    """Sequences of different lengths behind each other without padding, as verl packs them (remove padding)."""
    worst = 0.0
    place, types, _ = _place(on)
    for name in types:
        each = [_parts(1, length, 128, name, seed) for seed, length in enumerate(LENGTHS)]
        found = _packed(on, each, place)
        for number, parts in enumerate(each):
            exact = _through(lambda *it: _torch(*it, causal=True), [it.double() for it in parts], "cpu")
            theirs = _through(lambda *it: _torch(*it, causal=True), parts, place)
            worst = max(worst, _compare(exact, theirs, found[number], f"{name}, sequence of {LENGTHS[number]} tokens"))
    return f"{len(LENGTHS)} packed sequences off by {worst:.1e} at most, forward and backward; {_version(on)}"


def _place(on):
    """Return the first GPU and the types that flash-attn computes in; it needs Ampere or later."""
    import torch

    place, kinds = devices(on)[0][0], devices(on)[1]
    if place.type == "cpu":
        return place, ("float32",), kinds
    if torch.cuda.get_device_capability(place) < (8, 0):
        raise Skip(f"flash-attn needs a GPU of compute capability 8.0 or higher, and here is {kinds}")
    return place, tuple(name for name in types_of(place) if name != "float32"), kinds


def _version(on):
    """Name what was used; without a GPU, torch's attention stands in for it, and only the check itself is tried."""
    if on == "cpu":
        return "torch's attention in its place"
    import flash_attn

    return f"flash-attn {flash_attn.__version__}"


def _parts(batch, length, size, name, seed=0):
    """Return q, k and v: batch, tokens, heads, dimensions."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    shapes = [(batch, length, heads, size) for heads in (HEADS, KV_HEADS, KV_HEADS)]
    return [torch.randn(*shape, generator=generator).to(getattr(torch, name)) for shape in shapes]


def _through(function, parts, place):
    """Return a function's output and the gradients of its sum of squares."""
    leaves = [part.detach().to(place).requires_grad_() for part in parts]
    out = function(*leaves)
    out.double().pow(2).sum().backward()
    return [out.detach(), *(leaf.grad for leaf in leaves)]


def _torch(q, k, v, *, causal):
    """Attend with torch; it takes heads before tokens."""
    import torch

    q, k, v = (part.transpose(1, 2) for part in (q, k, v))
    k, v = (part.repeat_interleave(HEADS // KV_HEADS, dim=1) for part in (k, v))
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal).transpose(1, 2)


def _flash(on, q, k, v, *, causal):
    if on == "cpu":
        return _torch(q, k, v, causal=causal)
    from flash_attn import flash_attn_func

    return flash_attn_func(q, k, v, causal=causal)


def _packed(on, each, place):
    """Return, of each sequence, its output and gradients out of one packed call."""
    import torch

    leaves = [
        torch.cat([parts[number][0] for parts in each]).to(place).detach().requires_grad_() for number in range(3)
    ]
    starts = [sum(LENGTHS[:number]) for number in range(len(LENGTHS) + 1)]
    if on == "cpu":
        pieces = [[leaf[start:end][None] for leaf in leaves] for start, end in pairwise(starts)]
        out = torch.cat([_torch(*piece, causal=True)[0] for piece in pieces])
    else:
        from flash_attn import flash_attn_varlen_func

        table = torch.tensor(starts, dtype=torch.int32, device=place)
        longest = max(LENGTHS)
        out = flash_attn_varlen_func(*leaves, table, table, longest, longest, causal=True)
    out.double().pow(2).sum().backward()
    whole = [out.detach(), *(leaf.grad for leaf in leaves)]
    return [[part[start:end][None] for part in whole] for start, end in pairwise(starts)]


def _compare(exact, theirs, ours, what):
    """Hold each result against float64, and its distance against that of torch's; return the greatest."""
    worst = 0.0
    for reference, other, found, part in zip(exact, theirs, ours, WHAT, strict=True):
        error = expect_near(reference, found, LIMIT, f"{part}, {what}")
        allowed = CLOSE * float((other.cpu().double() - reference).norm() / reference.norm()) + 1e-3
        if error > allowed:
            raise CheckError(f"{part}, {what}: off by {error:.1e}, and torch's attention allows {allowed:.1e}")
        worst = max(worst, error)
    return worst
