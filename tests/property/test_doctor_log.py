"""Explaining logs holds for any bytes, and noise around a message changes nothing."""

from __future__ import annotations

import io

from hypothesis import given, settings
from hypothesis import strategies as st

from verl_env.doctor.explain import explain
from verl_env.doctor.failures import load_catalogue
from verl_env.doctor.log_scan import scan_log

CATALOGUE = load_catalogue()
EXAMPLES = sorted({text for one in CATALOGUE.signatures for text in one.examples if "\n" not in text})
NOISE = st.lists(st.text(st.characters(min_codepoint=97, max_codepoint=122), max_size=30), max_size=20)


def classes(data):
    return [one.name for one in explain(scan_log(io.BytesIO(data), CATALOGUE.signatures), CATALOGUE)]


@given(st.binary(max_size=5000))
@settings(deadline=None, max_examples=60)
def test_any_bytes(data):
    """No input is a fault."""
    assert isinstance(classes(data), list)


@given(st.sampled_from(EXAMPLES), NOISE, NOISE, st.sampled_from(["\n", "\r\n", "\r"]))
@settings(deadline=None, max_examples=100)
def test_noise_changes_nothing(example, before, after, ending):
    """Lines of letters before and after a message leave its classes as they are."""
    noisy = ending.join([*before, example, *after]).encode()
    assert classes(example.encode()) == classes(noisy)
