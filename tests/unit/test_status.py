"""A row's status comes from evidence that names the digest of its pins, and from nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from made import DIGEST, entry_of, evidence_of, header_of, row_of
from verl_env.matrix.status import LEVELS, proved, status_of

OTHER = "sha256:" + "1" * 64


@pytest.mark.parametrize(
    ("evidence", "expected"),
    [
        pytest.param((), "resolved", id="pins and no evidence"),
        pytest.param((evidence_of("imported"),), "imported", id="one"),
        pytest.param((evidence_of("gpu"), evidence_of("imported")), "gpu", id="the highest counts, in any order"),
        pytest.param((evidence_of("gpu", pins=OTHER),), "resolved", id="shown on other pins: does not count"),
        pytest.param(
            (evidence_of("gpu", pins=OTHER), evidence_of("imported")), "imported", id="only that of these pins"
        ),
        pytest.param((evidence_of("perfect"),), "resolved", id="an unknown level does not count"),
    ],
)
def test_status_of_a_variant(evidence, expected):
    """The highest level that was shown on exactly these pins."""
    assert expected == status_of(row_of(evidence=evidence), header_of())


def test_changed_pins_lose_their_evidence():
    """Change the pins, and the evidence no longer counts."""
    row = row_of(evidence=(evidence_of("exercised"),))
    assert "exercised" == status_of(row, header_of())
    assert "resolved" == status_of(row, replace(header_of(), digest=OTHER))


def test_no_pins_is_declared():
    """A row that was never resolved is only what somebody said, whatever evidence is written in it."""
    assert "declared" == status_of(row_of(evidence=(evidence_of("gpu"),)), None)


def test_broken_beats_evidence():
    """known-broken is said even of a row that once imported."""
    assert "known-broken" == status_of(row_of(broken="it dies", evidence=(evidence_of("gpu"),)), header_of())


def test_status_of_a_row_is_that_of_its_best_variant():
    """With several variants the best of them speaks for the row; each keeps its own."""
    entry = entry_of(python=("3.12", "3.11"))
    worse = replace(entry.pins[1], digest=OTHER)
    entry = replace(entry, pins=(worse, entry.pins[0]))
    assert ("exercised", "resolved", "exercised") == (entry.status(), entry.status(worse), entry.status(entry.pins[1]))
    assert DIGEST == entry.pins[1].digest


@pytest.mark.parametrize("least", LEVELS)
@pytest.mark.parametrize("status", [*LEVELS, "known-broken"])
def test_proved_follows_the_order_of_levels(status, least):
    """Each level includes those before it; known-broken is below all."""
    expected = status in LEVELS and LEVELS.index(status) >= LEVELS.index(least)
    assert expected is proved(status, least)
