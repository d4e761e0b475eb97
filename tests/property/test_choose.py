"""What holds of choosing for every node: newer is never worse but for a stated reason, and order never matters."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from small_matrix import ROWS, small_matrix
from verl_env.matrix.choose import Obstacles, Wishes, choose
from verl_env.matrix.matrix import Matrix
from verl_env.node.facts import Driver, Gpu, Libcuda, Node, Value

CAPABILITIES = ("3.7", "5.2", "6.0", "6.1", "7.0", "7.5", "8.0", "8.6", "8.9", "9.0", "10.0", "10.3", "12.0", "12.1")
EDGES = ("525.60.12", "525.60.13", "550.54.14", "570.26", "575.51.03", "579.99", "580", "580.65.06", "590.44.01")

drivers = st.one_of(
    st.sampled_from(EDGES),
    st.builds("{}.{}.{:02}".format, st.integers(390, 640), st.integers(10, 250), st.integers(0, 12)),
)
gpus = st.lists(
    st.builds(
        lambda capability: Gpu(name=f"sm_{capability}", source="a test", compute_capability=capability),
        st.sampled_from(CAPABILITIES),
    ),
    max_size=3,
).map(tuple)
libraries = st.one_of(
    st.none(),
    st.builds(
        lambda api, works: Libcuda(
            path="/compat", source="a test", compat=True, api_version=api, works=works, error=None if works else "803"
        ),
        st.sampled_from(("11.8", "12.1", "12.9", "13.0", "13.2")),
        st.booleans(),
    ),
)
values = {
    "glibc": st.one_of(st.none(), st.builds("2.{}".format, st.integers(5, 45))),
    "machine": st.sampled_from((None, "x86_64", "aarch64", "riscv64")),
}
nodes = st.builds(
    lambda driver, gpus, libcuda, **said: Node(
        driver=Driver(version=driver, source="a test") if driver else None,
        gpus=gpus if driver else (),
        libcuda=libcuda if driver else None,
        **{name: Value(value=value, source="a test") if value else None for name, value in said.items()},
    ),
    st.one_of(st.none(), drivers),
    gpus,
    libraries,
    **values,
)
wishes = st.builds(
    Wishes,
    engine=st.sampled_from((None, "vllm", "sglang", "none")),
    python=st.sampled_from((None, "3.10", "3.12")),
    verl=st.sampled_from((None, "0.7.1")),
    cpu=st.booleans(),
    prefer_native=st.booleans(),
)


@pytest.fixture(scope="module")
def matrix(facts) -> Matrix:
    """Return the small matrix."""
    return small_matrix(facts)


def chosen(matrix, node, wish):
    """Return the chosen row's id with its verdict and Python, or None."""
    fit = choose(matrix, node, wish, Obstacles()).chosen
    return (fit.entry.id, fit.verdict, fit.pins.python) if fit else None


@given(node=nodes, newer=drivers, wish=wishes)
def test_newer_driver_loses_no_row_without_saying_why(matrix, node, newer, wish):
    """A row that fits on a driver fits on a newer one, unless that one no longer drives the GPU, and then says so."""
    if node.driver is None or Version(newer) < Version(node.driver.version):
        return
    before = choose(matrix, node, wish, Obstacles())
    after = choose(matrix, replace(node, driver=Driver(version=newer, source="a test")), wish, Obstacles())

    fitting = {fit.entry.id for fit in after.fits if fit.fits}
    lost = {fit.entry.id for fit in before.fits if fit.fits and fit.entry.id not in fitting}
    stated = {fit.entry.id for fit in after.fits if any("is the last that does" in it for it in fit.reasons)}
    assert lost - stated == set()


@given(node=nodes, newer=st.integers(5, 60), wish=wishes)
def test_newer_glibc_loses_no_row(matrix, node, newer, wish):
    """A row that fits on a glibc fits on a newer one."""
    if node.glibc is None or newer < int(node.glibc.value.split(".")[1]):
        return
    before = choose(matrix, node, wish, Obstacles())
    after = choose(matrix, replace(node, glibc=Value(value=f"2.{newer}", source="a test")), wish, Obstacles())

    assert {fit.entry.id for fit in before.fits if fit.fits} <= {fit.entry.id for fit in after.fits if fit.fits}


@given(node=nodes, more=gpus, wish=wishes)
def test_more_gpus_gain_no_row(matrix, node, more, wish):
    """Every GPU of a node must fit, so another one never makes a row fit."""
    if not node.gpus:
        return
    fewer = choose(matrix, node, wish, Obstacles())
    mixed = choose(matrix, replace(node, gpus=node.gpus + more), wish, Obstacles())

    assert {fit.entry.id for fit in mixed.fits if fit.fits} <= {fit.entry.id for fit in fewer.fits if fit.fits}


@given(node=nodes, wish=wishes, row=st.sampled_from(tuple(ROWS)))
def test_row_that_does_not_fit_changes_nothing(matrix, node, wish, row):
    """Taking away, or adding, a row that does not fit the node leaves the choice as it was."""
    whole = choose(matrix, node, wish, Obstacles())
    if any(fit.fits for fit in whole.fits if fit.entry.id == row):
        return
    rest = {row_id: entry for row_id, entry in matrix.entries.items() if row_id != row}

    assert chosen(matrix, node, wish) == chosen(Matrix(facts=matrix.facts, entries=rest), node, wish)


@given(node=nodes, wish=wishes, order=st.permutations(tuple(ROWS)))
def test_order_of_files_never_matters(matrix, node, wish, order):
    """The same rows in any order give the same choice, and the same list of verdicts."""
    shuffled = Matrix(facts=matrix.facts, entries={row: matrix.entries[row] for row in order})
    one, other = choose(matrix, node, wish, Obstacles()), choose(shuffled, node, wish, Obstacles())

    assert one == other


@given(node=nodes, wish=wishes)
def test_every_rejection_has_its_reason(matrix, node, wish):
    """A row that fell says why; one that fits has nothing against it; the nearest is named when nothing fits."""
    choice = choose(matrix, node, wish, Obstacles())

    assert all(bool(fit.reasons) != fit.fits for fit in choice.fits)
    assert (choice.chosen is None) == (choice.nearest is not None)
