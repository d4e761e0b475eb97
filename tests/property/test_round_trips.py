"""What is written is read back equal, for any content."""

from __future__ import annotations

import datetime as dt
import json

from hypothesis import given
from hypothesis import strategies as st

from verl_env import toml
from verl_env.environment.activation import Activation
from verl_env.environment.exports import Export, applied
from verl_env.environment.shells import render_exports
from verl_env.matrix.pins import Pin, Pins, digest_of, make_pins, render_pins
from verl_env.records import from_plain

NAMES = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,10}[a-z0-9])?", fullmatch=True)
VERSIONS = st.from_regex(r"[0-9]{1,3}(\.[0-9]{1,3}){0,2}(\+cu[0-9]{3})?", fullmatch=True)
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30)
VARIABLES = st.from_regex(r"[A-Z_][A-Z0-9_]{0,8}", fullmatch=True)


@st.composite
def pins(draw, names):
    """Draw one pinned file a name, as a wheel or an sdist."""
    found = []
    for name in sorted(draw(names)):
        version = draw(VERSIONS)
        stem = f"{name.replace('-', '_')}-{version}"
        file = draw(
            st.sampled_from(
                [
                    f"{stem}-py3-none-any.whl",
                    f"{stem}-cp312-cp312-manylinux_2_28_x86_64.whl",
                    f"{name}-{version}.tar.gz",
                ]
            )
        )
        size = draw(st.integers(1, 10**12))
        sha256 = draw(st.from_regex(r"[0-9a-f]{64}", fullmatch=True))
        source = draw(st.sampled_from(["default", "pytorch-cpu"]))
        found.append(Pin(name=name, version=version, file=file, size=size, sha256=sha256, source=source))
    return tuple(found)


PINS = pins(st.sets(NAMES, min_size=1, max_size=4))


@given(PINS, st.one_of(st.just(()), PINS), st.dates())
def test_pins(found, build, made):
    """Pins are read back equal, and their header says what they are."""
    one = make_pins("a-row", "3.12", "x86_64", pins=found, build=build, made=made)
    plain = toml.loads(render_pins(one))
    groups = {key: plain.pop(key) for key in ("pins", "build")}
    assert one == from_plain(Pins, {**groups, "header": plain})
    assert one.header.digest == digest_of(found[::-1], build[::-1])


# A folder whose name holds a colon has no place in a list that colons divide.
EXPORTS = st.lists(
    st.one_of(
        st.builds(Export, name=VARIABLES, value=TEXT, how=st.sampled_from(["set", "unset"]), why=st.just("")),
        st.builds(
            Export,
            name=VARIABLES,
            value=TEXT.filter(lambda value: ":" not in value),
            how=st.just("prepend"),
            why=st.just(""),
        ),
    ),
    max_size=5,
)


@given(EXPORTS, st.dictionaries(VARIABLES, TEXT, max_size=5))
def test_exports_as_json(exports, environ):
    """JSON holds the value of every variable that is left set, joined with what was there."""
    values = applied(tuple(exports), environ)
    it = Activation(folder="/made/here", exports=tuple(exports), environ=environ)
    found = json.loads(render_exports(it, "json"))
    assert {it.name: values[it.name] for it in exports if it.name in values} == found


@given(EXPORTS, st.dictionaries(VARIABLES, TEXT, max_size=5))
def test_exports_twice_are_exports_once(exports, environ):
    """Applying an environment's variables again changes nothing."""
    once = applied(tuple(exports), environ)
    if len({it.name for it in exports}) == len(exports):
        assert once == applied(tuple(exports), once)


@given(st.dates(), st.integers(0, 10**12))
def test_header_dates_and_sizes(day, size):
    """Dates stay dates and sizes stay exact."""
    pin = Pin(name="a", version="1", file="a-1-py3-none-any.whl", size=size, sha256="0" * 64)
    plain = toml.loads(render_pins(make_pins("a", "3.12", "x86_64", pins=(pin,), build=(), made=day)))
    assert (day, dt.date, size) == (plain["made"], type(plain["made"]), plain["download_bytes"])
