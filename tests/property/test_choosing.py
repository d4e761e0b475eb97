"""What must hold of choosing for every node and every matrix."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from made import cpu_entry, entry_of, gpu_of, matrix_of, node_of
from verl_env.matrix.choose import Obstacles, Wishes, choose
from verl_env.matrix.fit import REJECTED, fit_row
from verl_env.matrix.load import load_matrix

FACTS = load_matrix().facts
# Drivers around every boundary that the facts name, and between.
NAMED = sorted({it for toolkit in FACTS.toolkits for it in (toolkit.driver, toolkit.minor_driver) if it})
DRIVERS = st.one_of(
    st.sampled_from([*NAMED, "470.82.01", "525.60.12", "579.99", "580.0", "999.9"]),
    st.builds("{}.{}.{:02}".format, st.integers(390, 999), st.integers(0, 200), st.integers(0, 99)),
)
CAPABILITIES = st.sampled_from(["6.1", "7.0", "7.5", "8.0", "8.6", "8.9", "9.0", "10.0", "10.3", "12.0"])
GPUS = st.lists(CAPABILITIES.map(gpu_of), max_size=3)
GLIBCS = st.sampled_from(["2.17", "2.28", "2.31", "2.35", "2.39", None])
NODES = st.builds(
    node_of,
    st.one_of(st.none(), DRIVERS),
    gpus=GPUS,
    glibc=GLIBCS,
    machine=st.sampled_from(["x86_64", "aarch64"]),
)
SETS = st.sampled_from(
    [
        ("13.0", {"torch": "2.11.0+cu130", "vllm": "0.24.0"}),
        ("13.0", {"torch": "2.11.0+cu130"}),
        ("12.9", {"torch": "2.9.0", "vllm": "0.12.0"}),
        ("12.6", {"torch": "2.7.1+cu126"}),
        ("11.8", {"torch": "2.6.0+cu118"}),
        (None, {"torch": "2.13.0+cpu"}),
    ]
)


@st.composite
def entries(draw, name):
    """Draw a row."""
    cuda, versions = draw(SETS)
    parts = {
        "set": {"verl": draw(st.sampled_from(["0.5.0", "0.7.1", "0.9.1", "0.10.0"])), **versions},
        "glibc": draw(GLIBCS),
        "arch": draw(st.sampled_from([("x86_64",), ("aarch64",), ("x86_64", "aarch64")])),
        "python": draw(st.sampled_from([("3.12",), ("3.11", "3.12"), ("3.10",)])),
        "level": draw(st.sampled_from([None, "imported", "exercised", "gpu"])),
        "broken": draw(st.sampled_from([None, None, None, "it dies"])),
    }
    return cpu_entry(name, **parts) if cuda is None else entry_of(name, cuda=cuda, **parts)


@st.composite
def matrices(draw):
    """Draw up to six rows."""
    return [draw(entries(f"row-{number}")) for number in range(draw(st.integers(0, 6)))]


WISHES = st.builds(
    Wishes,
    verl=st.sampled_from([None, None, "0.9.1"]),
    engine=st.sampled_from([None, None, "vllm"]),
    python=st.sampled_from([None, None, "3.12"]),
    cpu=st.booleans(),
    prefer_native=st.booleans(),
    least=st.sampled_from(["declared", "imported"]),
)


def chosen(rows, node, wishes):
    """Return the fit that is chosen, or None."""
    return choose(matrix_of(FACTS, *rows), node, wishes, Obstacles()).chosen


@given(matrices(), NODES, WISHES)
def test_the_chosen_row_admits_the_node(rows, node, wishes):
    """Held against the node again, by itself, the chosen variant fits, for the same kind of work, with no reason against."""
    found = choose(matrix_of(FACTS, *rows), node, wishes, Obstacles())
    if found.chosen is None:
        assert all(fit.verdict == REJECTED and fit.reasons for fit in found.fits)
        return
    fit, pins = found.chosen, found.chosen.pins
    again = fit_row(fit.entry, pins, node, FACTS, for_cpu=found.for_cpu)
    assert (fit.verdict, ()) == (again.verdict, again.reasons)
    assert not node.glibc or not pins.glibc or Version(node.glibc.value) >= Version(pins.glibc)
    assert pins.arch == node.machine.value
    assert wishes.verl in (None, fit.entry.row.set["verl"])
    assert wishes.python in (None, pins.python)


@given(matrices(), NODES, WISHES, st.randoms(use_true_random=False))
def test_order_of_rows_never_matters(rows, node, wishes, random):
    """Whatever order files are read in, the same variant is chosen, and every row gets the same reasons."""
    turned = list(rows)
    random.shuffle(turned)
    one, two = (choose(matrix_of(FACTS, *it), node, wishes, Obstacles()) for it in (rows, turned))
    assert one == two


@given(entries("row"), NODES, DRIVERS)
def test_a_newer_driver_loses_no_row(entry, node, newer):
    """What fits a driver fits every newer one, and no worse, unless NVIDIA dropped the GPU: then that is the reason."""
    if node.driver is None or Version(newer) < Version(node.driver.version):
        return
    order = (REJECTED, "forward-compat", "minor-version", "native", "cpu")
    pins = entry.pins[0]
    before = fit_row(entry, pins, node, FACTS, for_cpu=False)
    after = fit_row(entry, pins, replace(node, driver=replace(node.driver, version=newer)), FACTS, for_cpu=False)
    if after.reasons and all("is the last that does" in reason for reason in set(after.reasons) - set(before.reasons)):
        return
    assert order.index(before.verdict) <= order.index(after.verdict), after.reasons


@given(matrices(), entries("another"), NODES, WISHES)
def test_a_row_that_does_not_fit_changes_nothing(rows, other, node, wishes):
    """Adding a row that is rejected leaves the choice as it was."""
    if chosen([other], node, wishes):
        return
    assert chosen(rows, node, wishes) == chosen([*rows, other], node, wishes)


@given(matrices(), entries("another"), NODES, WISHES)
def test_one_more_row_takes_over_or_leaves_the_choice(rows, other, node, wishes):
    """Adding a row never brings a third one to the top."""
    before, after = chosen(rows, node, wishes), chosen([*rows, other], node, wishes)
    assert after == before or after.entry.id == "another"


@given(matrices(), NODES, WISHES)
def test_every_rejected_row_has_a_reason(rows, node, wishes):
    """No row falls silently, and none that fits carries a reason."""
    found = choose(matrix_of(FACTS, *rows), node, wishes, Obstacles())
    assert len(rows) == len(found.fits)
    assert [] == [fit.entry.id for fit in found.fits if bool(fit.reasons) != (fit.verdict == REJECTED)]
