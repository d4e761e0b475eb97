"""Evidence is added to a row's file, and what people wrote there stays."""

from __future__ import annotations

import pytest

from made import DIGEST, evidence_of
from verl_env import toml
from verl_env.matrix.evidence import with_evidence
from verl_env.matrix.rows import Row
from verl_env.records import from_plain

ROW = """# Why this row exists.
title = "a set"   # said to people
python = ["3.12", "3.11"]
arch = ["x86_64"]

[set]
verl = "0.9.1"
torch = "2.11.0"  # the default index's build

[resolve]
requirements = ["verl==0.9.1"]
constraints = [
    { spec = "a<2", why = "it breaks" },  # measured
]
"""
OTHER = "sha256:" + "1" * 64


def levels(text):
    """Return (level, Python, pins) of each entry, through the reader of rows."""
    return [(it.level, it.python, it.pins) for it in from_plain(Row, toml.loads(text)).evidence]


def test_everything_people_wrote_stays():
    """The old text is a prefix of the new one, comments and all."""
    text = with_evidence(ROW, evidence_of())
    assert text.startswith(ROW)
    assert [("imported", "3.12.1", DIGEST)] == levels(text)
    assert ROW == with_evidence(text, evidence_of("gpu"))[: len(ROW)]


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        pytest.param({"level": "imported"}, [("imported", "3.12.1", DIGEST)], id="the same again renews it"),
        pytest.param(
            {"level": "gpu"}, [("imported", "3.12.1", DIGEST), ("gpu", "3.12.1", DIGEST)], id="another level is added"
        ),
        pytest.param(
            {"python": "3.11.9"},
            [("imported", "3.12.1", DIGEST), ("imported", "3.11.9", DIGEST)],
            id="another variant is added",
        ),
        pytest.param({"python": "3.12.9"}, [("imported", "3.12.9", DIGEST)], id="another patch is the same variant"),
        pytest.param({"pins": OTHER}, [("imported", "3.12.1", OTHER)], id="other pins replace what counts no more"),
    ],
)
def test_what_takes_whose_place(second, expected):
    """One entry a variant, level and digest of pins."""
    text = with_evidence(with_evidence(ROW, evidence_of()), evidence_of(**{"level": "imported", **second}))
    assert expected == levels(text)


def test_twice_gives_the_same_bytes():
    """Writing the same evidence again changes nothing."""
    once = with_evidence(ROW, evidence_of())
    assert once == with_evidence(once, evidence_of())


def test_dates_are_dates():
    """The date is a TOML date and not text."""
    assert "date = 2026-11-30\n" in with_evidence(ROW, evidence_of())
