"""What a receipt keeps of proofs that came one after the other."""

from __future__ import annotations

from verl_env.environment.receipt import SCHEMA, Proved, Receipt, Shown, with_proof

GPU = "NVIDIA H200, driver 580.159.04"


def receipt():
    """Return a receipt of an environment whose imports were shown."""
    return Receipt(
        schema=SCHEMA,
        name="row-1",
        lock_digest="sha256:0",
        row="row",
        title="a row",
        python="3.12.3",
        interpreter="/usr/bin/python3.12",
        packages=1,
        made="2026-11-30T00:00:00+00:00",
        by="verl-env",
        level="imports",
        device="none",
        imports=("torch",),
        shown=(),
        exports=(),
        set={},
    )


def proved(level, *names, host="a", said="right"):
    """Return what a proof of these checks showed on one host's GPU."""
    shown = tuple(Shown(level="kernel", name=name, seconds=1.0, said=said) for name in names)
    return Proved(level=level, device=GPU, host=host, when="2026-11-30T00:00:00+00:00", shown=shown)


def names(it):
    """Return each check with what it said."""
    return [(shown.name, shown.said) for shown in it.shown]


def test_single_checks_add_up():
    """They reach no level, and are kept beside each other; what is shown again says what it said last."""
    first = with_proof(receipt(), proved("files", "torch_matmul", "triton_product"))
    both = with_proof(first, proved("files", "triton_product", "flash_attn_dense", said="right again"))
    (there,) = both.later
    expected = [("torch_matmul", "right"), ("triton_product", "right again"), ("flash_attn_dense", "right again")]
    assert expected == names(there)
    assert ("imports", "none") == both.best


def test_a_lower_level_takes_nothing_away():
    """After all kernels, single checks or an import proof in the same place leave the level where it is."""
    after = with_proof(with_proof(receipt(), proved("kernel", "torch_matmul")), proved("imports"))
    assert ("kernel", GPU) == after.best
    assert [("torch_matmul", "right")] == names(after.later[0])


def test_places_are_kept_apart():
    """What was shown on one host says nothing of another."""
    both = with_proof(with_proof(receipt(), proved("kernel", "torch_matmul")), proved("files", host="b"))
    assert [("a", "kernel"), ("b", "files")] == [(it.host, it.level) for it in both.later]
