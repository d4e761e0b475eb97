"""Choosing among rows: what fits and is proved, the newest verl, then the newest engine."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from made import AMD, H200, NVIDIA_DEVICE, SLURM, compat_of, cpu_entry, entry_of, gpu_of, matrix_of, node_of
from verl_env.commands.choosing import Situation, explained, refusal
from verl_env.errors import NoDeviceError, NoRowError
from verl_env.indexes import Indexes
from verl_env.matrix.choose import Obstacles, Wishes, choose, works_on_cpu

TORCH13 = "2.11.0+cu130"
NEW = entry_of("new", set={"verl": "0.9.1", "torch": TORCH13, "vllm": "0.24.0"})
OLD = entry_of("old", cuda="12.9", set={"verl": "0.7.1", "torch": "2.9.0", "vllm": "0.12.0", "ray": "2.54.1"})
GPU_NODE = node_of("580.95.05", gpus=[H200])


def chosen_id(facts, entries, node=GPU_NODE, wishes=None, **obstacles):
    """Return the id of the row that is chosen, or None."""
    found = choose(matrix_of(facts, *entries), node, wishes or Wishes(), Obstacles(**obstacles)).chosen
    return found and found.entry.id


@pytest.mark.parametrize(
    ("parts", "cpu"),
    [
        pytest.param({}, True, id="nothing in sight"),
        pytest.param({"driver": "580.95.05"}, False, id="a driver"),
        pytest.param({"gpus": [H200]}, False, id="a GPU"),
        pytest.param({"nvidia_device": NVIDIA_DEVICE}, False, id="NVIDIA hardware and no driver: broken, not CPU"),
        pytest.param({"libcuda": compat_of("13.0")}, False, id="a libcuda"),
        pytest.param({"scheduler": SLURM}, False, id="a login node: a scheduler and no GPU"),
        pytest.param({"other_accelerators": (AMD,)}, False, id="AMD only"),
        pytest.param({"described": True}, False, id="described: for a GPU node somewhere else"),
    ],
)
def test_what_counts_as_cpu_work(parts, cpu):
    """A CPU row is chosen only where there is nothing that work could be meant for; --cpu always asks for one."""
    node = node_of(**parts)
    assert (cpu, True) == (works_on_cpu(node, asked=False), works_on_cpu(node, asked=True))


@pytest.mark.parametrize(
    ("driver", "gpu", "expected"),
    [
        pytest.param("580.95.05", "9.0", "new", id="both fit: the newest verl"),
        pytest.param("550.54.14", "9.0", "old", id="CUDA 13 falls on the driver"),
        pytest.param("580.95.05", "7.0", "old", id="CUDA 13 falls on a V100"),
        pytest.param("470.82.01", "9.0", None, id="nothing fits"),
    ],
)
def test_choice_follows_the_node(facts, driver, gpu, expected):
    """The newest row that the node carries."""
    assert expected == chosen_id(facts, (OLD, NEW), node_of(driver, gpus=[gpu_of(gpu)]))


@pytest.mark.parametrize(
    ("wishes", "expected"),
    [
        pytest.param({"verl": "0.7.1"}, "old", id="verl"),
        pytest.param({"ray": "2.54.1"}, "old", id="ray, as a cluster has it"),
        pytest.param({"row": "old"}, "old", id="row"),
        pytest.param({"engine": "vllm"}, "new", id="engine"),
        pytest.param({"engine": "sglang"}, None, id="an engine that no row has"),
        pytest.param({"python": "3.9"}, None, id="a Python that no row has"),
        pytest.param({"verl": "0.7.1", "row": "new"}, None, id="wishes that contradict each other"),
    ],
)
def test_wishes_narrow(facts, wishes, expected):
    """Each wish leaves only rows that meet it."""
    assert expected == chosen_id(facts, (OLD, NEW), wishes=Wishes(**wishes))


def test_a_wish_never_makes_a_row_fit(facts):
    """A row that is asked for by name still has to fit."""
    node = node_of("550.54.14", gpus=[H200])
    assert None is chosen_id(facts, (OLD, NEW), node, Wishes(row="new"))


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        pytest.param({"verl": "0.9.1"}, {"verl": "0.10.0"}, "b", id="verl by version, not by text"),
        pytest.param({"vllm": "0.9.2"}, {"vllm": "0.24.0"}, "b", id="engine by version, not by text"),
        pytest.param({"vllm": "0.24.0"}, {}, "a", id="an engine before none"),
        pytest.param({}, {}, "a", id="equal: by id"),
    ],
)
def test_order_of_rows(facts, one, other, expected):
    """Newest verl, then newest engine, then the id."""
    base = {"verl": "0.9.1", "torch": TORCH13}
    entries = (entry_of("a", set=base | one), entry_of("b", set=base | other))
    assert expected == chosen_id(facts, entries) == chosen_id(facts, entries[::-1])


def test_prefer_native(facts):
    """With --prefer-native an older verl whose toolkit is native goes first."""
    node = node_of("580.0", gpus=[H200])
    assert "new" == chosen_id(facts, (OLD, NEW), node)
    assert "old" == chosen_id(facts, (OLD, NEW), node, Wishes(prefer_native=True))


@pytest.mark.parametrize(
    ("level", "least", "expected"),
    [
        pytest.param(None, "imported", None, id="resolved only: not unasked"),
        pytest.param(None, "declared", "a", id="resolved, when asked"),
        pytest.param("imported", "imported", "a", id="imported is enough"),
        pytest.param("imported", "exercised", None, id="imported is not exercised"),
        pytest.param("exercised", "imported", "a", id="more than enough"),
        pytest.param("gpu", "exercised", "a", id="kernels ran"),
    ],
)
def test_unproved_rows_wait_to_be_asked_for(facts, level, least, expected):
    """Only rows proved at least to the level asked for are chosen."""
    entry = entry_of("a", level=level, set={"verl": "0.9.1", "torch": TORCH13})
    assert expected == chosen_id(facts, (entry,), wishes=Wishes(least=least))


def test_a_broken_row_is_not_chosen_even_when_unproved_ones_are(facts):
    """known-broken is below every level."""
    entry = entry_of("a", broken="it dies", set={"verl": "0.9.1", "torch": TORCH13})
    assert None is chosen_id(facts, (entry,), wishes=Wishes(least="declared"))


def test_obstacle_rejects_one_variant_with_its_reason(facts):
    """What cannot be reached falls for that reason, and the next row is taken."""
    obstacles = {"variants": {NEW.pins[0].file_name: "out of reach from this node: torch"}}
    found = choose(matrix_of(facts, OLD, NEW), GPU_NODE, Wishes(), Obstacles(**obstacles))
    assert "old" == found.chosen.entry.id
    assert ("out of reach from this node: torch",) == next(it for it in found.fits if it.entry.id == "new").reasons


@pytest.mark.parametrize(
    ("pythons", "expected"),
    [
        pytest.param(None, "3.12", id="a described node: the row's own first"),
        pytest.param(frozenset({"3.12", "3.11"}), "3.12", id="both here: the row's own first"),
        pytest.param(frozenset({"3.11"}), "3.11", id="what is here"),
        pytest.param(frozenset({"3.9"}), "3.12", id="none here: the row's own first, to be brought"),
    ],
)
def test_variant_follows_the_pythons_here(facts, pythons, expected):
    """Among a row's Pythons, one that is on this node goes first; then the row's own order."""
    entry = entry_of("a", python=("3.12", "3.11"), set={"verl": "0.9.1", "torch": TORCH13})
    found = choose(matrix_of(facts, entry), GPU_NODE, Wishes(), Obstacles(pythons=pythons))
    assert expected == found.chosen.pins.python


def test_python_wish_picks_the_variant(facts):
    """--python 3.11 takes the row's second Python although the first is here."""
    entry = entry_of("a", python=("3.12", "3.11"), set={"verl": "0.9.1", "torch": TORCH13})
    wishes = Wishes(python="3.11")
    found = choose(matrix_of(facts, entry), GPU_NODE, wishes, Obstacles(pythons=frozenset({"3.12"})))
    assert "3.11" == found.chosen.pins.python


def test_row_without_pins_falls(facts):
    """A row whose pins were not made yet cannot be installed."""
    entry = entry_of("a", pins=(), set={"verl": "0.9.1", "torch": TORCH13})
    found = choose(matrix_of(facts, entry), GPU_NODE, Wishes(), Obstacles())
    assert ("only declared: no pins were made yet (verl-env matrix resolve a)",) == found.fits[0].reasons


def test_what_is_broken_needs_no_pins(facts):
    """A pair that cannot be mended says so, and nothing of pins that nobody will make."""
    entry = entry_of("a", pins=(), set={"verl": "0.9.1", "torch": TORCH13}, broken="they exclude each other")
    found = choose(matrix_of(facts, entry), GPU_NODE, Wishes(), Obstacles())
    assert ("known broken: they exclude each other",) == found.fits[0].reasons


def test_nearest_is_the_one_with_the_lowest_driver_to_reach(facts):
    """Of two rows that lack only a driver, the nearest is the one that needs the lower."""
    found = choose(matrix_of(facts, OLD, NEW), node_of("470.82.01", gpus=[H200]), Wishes(), Obstacles())
    assert ("old", "525.60.13") == (found.nearest.entry.id, found.nearest.driver_needed)


def refused(facts, node, *entries):
    """Return the error for a node that none of the entries fits."""
    matrix = matrix_of(facts, *entries)
    situation = Situation(matrix=matrix, node=node, wishes=Wishes(), indexes=Indexes())
    choice = choose(matrix, node, Wishes(), Obstacles())
    assert explained(situation, choice)["chosen"] is None
    return refusal(situation, choice)


def test_refusal_lists_each_row_and_the_driver_that_would_do(facts):
    """An old driver: exit code 4, every row with its reason, and what driver would do."""
    error = refused(facts, node_of("470.82.01", gpus=[H200]), OLD, NEW)
    assert (NoRowError, 4) == (type(error), error.exit_code)
    assert ["new", "old"] == sorted(line.split(":")[0] for line in error.details)
    assert all("this node has 470.82.01" in line for line in error.details)
    assert error.hint.startswith("a driver >= 525.60.13 would do (row old)")


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        pytest.param({"other_accelerators": (AMD,)}, "the accelerator here is not NVIDIA's: AMD", id="AMD only"),
        pytest.param({"scheduler": SLURM}, "a login node?", id="login node"),
        pytest.param({"nvidia_device": NVIDIA_DEVICE}, "and no driver answers", id="NVIDIA device, no driver"),
    ],
)
def test_refusal_without_a_driver(facts, parts, said):
    """No CPU row is taken silently: exit code 3, what was seen, and the three ways on."""
    error = refused(facts, node_of(**parts), OLD, NEW, cpu_entry())
    assert (NoDeviceError, 3) == (type(error), error.exit_code)
    assert said in error.message
    assert "--cpu" in error.hint
    assert "--driver" in error.hint


def test_login_node_is_told_of_srun(facts):
    """Where a scheduler is, the hint names it too."""
    assert "srun" in refused(facts, node_of(scheduler=SLURM), OLD).hint


def test_explained_has_the_keys_scripts_read(facts):
    """`data.chosen` has every key that DESIGN.md promises."""
    matrix = matrix_of(facts, OLD, NEW)
    situation = Situation(matrix=matrix, node=GPU_NODE, wishes=Wishes(), indexes=Indexes())
    data = explained(situation, choose(matrix, GPU_NODE, Wishes(), Obstacles()))
    chosen = SimpleNamespace(**data["chosen"])
    assert ("new", "0.9.1", "vllm", "13.0", "native") == (
        chosen.id, chosen.verl, chosen.engine, chosen.cuda, chosen.support
    )  # fmt: skip
    assert ("580", "2.28", "x86_64", "3.12", "exercised") == (
        chosen.driver_min, chosen.glibc_min, chosen.arch, chosen.python, chosen.status
    )  # fmt: skip
    assert [("new", "native"), ("old", "native")] == [(row["id"], row["verdict"]) for row in data["rows"]]
