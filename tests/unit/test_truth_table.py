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
