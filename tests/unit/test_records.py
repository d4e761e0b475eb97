"""Records from TOML and JSON: strict, with key paths, every fault at once."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import dataclass, field

import pytest

from made import row_of
from verl_env.matrix.rows import Row
from verl_env.records import RecordError, from_plain, to_plain


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A record inside another."""

    name: str
    count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """A record with every kind of field that ours have."""

    title: str
    python: tuple[str, ...]
    ratio: float = 0.0
    yes: bool = False
    day: dt.date | None = None
    table: dict[str, str] = field(default_factory=dict)
    parts: tuple[Part, ...] = ()


GOOD = {"title": "t", "python": ["3.10"]}


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        pytest.param({"python": [3.10]}, "python[0]: expected str, found float `3.1`", id="3.10 is not text"),
        pytest.param({"python": "3.10"}, "python: expected list, found str `3.10`", id="text is not a list"),
        pytest.param({"title": 3}, "title: expected str, found int `3`", id="a number for text"),
        pytest.param({"yes": 1}, "yes: expected bool, found int `1`", id="a number for a boolean"),
        pytest.param({"ratio": "1"}, "ratio: expected float, found str `1`", id="text for a number"),
        pytest.param({"table": {"a": 1}}, "table['a']: expected str, found int `1`", id="a number in a table of texts"),
        pytest.param({"table": "a"}, "table: expected a table", id="text for a table"),
        pytest.param({"parts": ["a"]}, "parts[0]: expected a table", id="text for a record"),
        pytest.param({"parts": [{"name": "a"}, {}]}, "parts[1].name: required, and missing", id="missing, with path"),
        pytest.param({"parts": [{"name": "a", "count": True}]}, "parts[0].count: expected int", id="true is no number"),
        pytest.param({"parts": [{"name": "a", "x": 1}]}, "parts[0]: unknown key `x`", id="unknown, with path"),
        pytest.param({"day": "yesterday"}, "day", id="no date"),
    ],
)
def test_faults_have_key_paths(change, fault):
    """What does not fit is named by its path, in words of TOML."""
    with pytest.raises(RecordError) as raised:
        from_plain(Whole, GOOD | change)
    assert any(it.startswith(fault) for it in raised.value.faults), raised.value.faults


def test_every_fault_at_once():
    """Four things wrong are four lines, so that a file is mended in one go."""
    with pytest.raises(RecordError) as raised:
        from_plain(Whole, {"python": [3.10, "3.11", 3.12], "yes": "no", "speed": 1})
    assert 5 == len(raised.value.faults), raised.value.faults


@pytest.mark.parametrize("plain", [None, 3, "text", []], ids=["nothing", "number", "text", "list"])
def test_what_is_no_table(plain):
    """Something other than a table is a fault and no traceback."""
    with pytest.raises(RecordError):
        from_plain(Whole, plain)


def test_defaults_and_exact_types():
    """What is absent has its default; a whole number is a float where one belongs; dates stay dates."""
    found = from_plain(Whole, GOOD | {"ratio": 2, "day": dt.date(2026, 11, 30), "parts": [{"name": "a"}]})
    assert ("3.10",) == found.python
    assert (2.0, dt.date(2026, 11, 30), Part(name="a")) == (found.ratio, found.day, found.parts[0])


def test_plain_and_back_through_json():
    """A record survives JSON, with dates as ISO text."""
    row = row_of()
    assert row == from_plain(Row, json.loads(json.dumps(to_plain(row))))
    assert "2026-11-30" == to_plain(Whole(title="t", python=(), day=dt.date(2026, 11, 30)))["day"]
