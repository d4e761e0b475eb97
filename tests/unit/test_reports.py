"""People's reported failures: fed to the choice, each node gets a row that would have worked, or the true reason."""

from __future__ import annotations

import pytest

from small_matrix import choose_for, node_from, read_table, small_matrix
from verl_env.matrix.facts import admits
from verl_env.matrix.fit import COMPILED, driver_floor

REPORTS = read_table("reports.toml")


@pytest.mark.parametrize("plain", [pytest.param(plain, id=plain["id"]) for plain in REPORTS])
def test_reported_node_gets_its_row(facts, plain):
    """The small matrix has a row for each node that a CUDA 12 driver carries, and none for the others."""
    chosen = choose_for(plain, small_matrix(facts)).chosen

    found = (chosen.entry.id, chosen.verdict) if chosen else (None, None)
    assert (plain.get("row"), plain.get("verdict")) == found, plain["why"]


@pytest.mark.parametrize("plain", [pytest.param(plain, id=plain["id"]) for plain in REPORTS if "says" in plain])
def test_reported_node_is_told_why(facts, plain):
    """The row that people tried, or would try, says what was wrong with it."""
    choice = choose_for(plain, small_matrix(facts))
    (fit,) = (fit for fit in choice.fits if fit.entry.id == plain.get("of", "cu130"))

    said = "; ".join((*fit.reasons, *fit.notes))
    assert plain["says"] in said, said
    assert plain.get("silent", "\n") not in said, said


@pytest.mark.parametrize("plain", [pytest.param(plain, id=plain["id"]) for plain in REPORTS])
def test_shipped_row_for_a_reported_node_runs_there(shipped, plain):
    """Whatever the shipped matrix chooses is of a CUDA major that the driver carries, with code for each GPU."""
    choice = choose_for(plain, shipped, least="declared")
    if "cuda" not in plain:
        floors = {fit.driver_needed for fit in choice.fits if fit.entry.row.cuda and not fit.entry.row.broken}
        assert choice.chosen is None
        assert floors <= {"525.60.13", "580"}, floors
        return

    row = choice.chosen.entry.row
    builds = [facts for name in COMPILED if name in row.set if (facts := _build(shipped, name, row))]
    lacking = [
        (build.package, gpu.name)
        for build in builds
        for gpu in node_from(plain, shipped).gpus
        if not admits(build, gpu.compute_capability, ptx_ok=choice.chosen.verdict == "native")
    ]
    assert plain["cuda"] == row.cuda.split(".")[0]
    assert driver_floor(row.cuda, shipped.facts) == "525.60.13"
    assert lacking == []


def _build(matrix, name, row):
    return matrix.facts.build(name, row.set[name], machine="x86_64")
