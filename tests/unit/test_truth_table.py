"""Which row a node must get, by NVIDIA's and upstream's tables: truth_table.toml has each node with its reason."""

from __future__ import annotations

from collections import Counter

import pytest

from small_matrix import choose_for, read_table, small_matrix

NODES = read_table("truth_table.toml")


@pytest.mark.parametrize("plain", [pytest.param(plain, id=plain["id"]) for plain in NODES])
def test_node_gets_its_row(facts, plain):
    """The chosen row and its verdict, or none; `why` says which table it is read from."""
    choice = choose_for(plain, small_matrix(facts))

    chosen = choice.chosen
    found = (chosen.entry.id, chosen.verdict) if chosen else (None, None)
    assert (plain.get("row"), plain.get("verdict")) == found, plain["why"]


@pytest.mark.parametrize("plain", [pytest.param(plain, id=plain["id"]) for plain in NODES if "says" in plain])
def test_row_says_why(facts, plain):
    """A row says the true reason it fell, or what to know of it; and nothing that is false."""
    choice = choose_for(plain, small_matrix(facts))
    (fit,) = (fit for fit in choice.fits if fit.entry.id == plain.get("of", plain.get("about", "cu130")))

    said = "; ".join((*fit.reasons, *fit.notes))
    assert plain["says"] in said, said
    assert plain.get("silent", "\n") not in said, said


def test_nobody_is_left_without_a_reason(facts):
    """Every row that fell says why; every node has its own name and the table that decides it."""
    matrix = small_matrix(facts)

    silent = [
        (plain["id"], fit.entry.id)
        for plain in NODES
        for fit in choose_for(plain, matrix).fits
        if not fit.fits and not fit.reasons
    ]

    assert silent == []
    assert [name for name, count in Counter(plain["id"] for plain in NODES).items() if count > 1] == []
    assert [plain["id"] for plain in NODES if not plain["why"]] == []


# A row of the shipped matrix, a node, and the verdict: whatever rows are added, these stay. The reasons are those of
# truth_table.toml: T and M (drivers), D (a GPU's drivers), C (what is compiled in), P (glibc).
SHIPPED = [
    ("verl091-vllm024-cu130", {"driver": "580.65.06", "gpus": ["H100"]}, "native", "T"),
    ("verl091-vllm024-cu130", {"driver": "580.0", "gpus": ["H100"]}, "minor-version", "M"),
    ("verl091-vllm024-cu130", {"driver": "579.99", "gpus": ["H100"]}, "rejected", "M"),
    ("verl091-vllm024-cu130", {"driver": "535.161.07", "gpus": ["A100"]}, "rejected", "M"),
    ("verl091-vllm024-cu130", {"driver": "595.45.04", "gpus": ["RTX 5090"]}, "native", "T; C: 12.0"),
    ("verl091-vllm024-cu130", {"driver": "580.95.05", "gpus": ["V100"]}, "rejected", "C: from 7.5"),
    ("verl091-vllm024-cu130", {"driver": "580.95.05", "gpus": ["T4"]}, "native", "C: 7.5"),
    ("verl091-vllm024-cu130", {"driver": "580.95.05", "gpus": ["T4", "V100"]}, "rejected", "C: all must fit"),
    ("verl091-vllm024-cu130", {"driver": "580.95.05", "gpus": ["H100"], "glibc": "2.28"}, "rejected", "P: 2.31"),
    ("verl091-vllm024-cu130", {"driver": "535.183.06", "gpus": ["H100"], "compat": "13.0"}, "forward-compat", "F"),
    ("verl091-vllm024-cu130", {}, "rejected", "no GPU"),
    ("verl071-vllm012-cu129", {"driver": "525.60.12", "gpus": ["A100"]}, "rejected", "M"),
    ("verl071-vllm012-cu129", {"driver": "525.60.13", "gpus": ["A100"]}, "minor-version", "M"),
    ("verl071-vllm012-cu129", {"driver": "550.54.14", "gpus": ["A100"]}, "minor-version", "T: 575.51.03"),
    ("verl071-vllm012-cu129", {"driver": "575.51.03", "gpus": ["B200"]}, "native", "T; C: 10.0"),
    ("verl071-vllm012-cu129", {"driver": "580.65.06", "gpus": ["V100"]}, "native", "C: 7.0"),
    ("verl071-vllm012-cu129", {"driver": "590.48.01", "gpus": ["V100"]}, "rejected", "D"),
    ("verl071-vllm012-cu129", {"driver": "580.95.05", "gpus": ["P100"]}, "rejected", "C: from 7.0"),
    ("verl071-vllm012-cu129", {"driver": "580.95.05", "gpus": ["GH200"], "arch": "aarch64"}, "rejected", "x86_64"),
    ("cpu", {}, "cpu", "nothing of NVIDIA's in sight"),
    ("cpu", {"driver": "580.95.05", "gpus": ["H100"]}, "rejected", "a GPU is here"),
    ("cpu", {"driver": "580.95.05", "gpus": ["H100"], "cpu": True}, "cpu", "asked for"),
    ("cpu", {"scheduler": "slurm"}, "rejected", "a login node"),
    ("cpu", {"glibc": "2.27"}, "rejected", "P: torch 2.13 needs 2.28"),
]


@pytest.mark.parametrize(("row", "plain", "verdict", "why"), SHIPPED)
def test_shipped_row_on_a_node(shipped, row, plain, verdict, why):
    """A named row of the shipped matrix gets the verdict that the tables give it."""
    choice = choose_for(plain, shipped, least="declared")

    assert [verdict] == [fit.verdict for fit in choice.fits if fit.entry.id == row], why
