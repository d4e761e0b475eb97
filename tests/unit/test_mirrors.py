"""Mirrors as data and as a choice: sets by name, what they ask for, and which measured place is taken."""

from __future__ import annotations

import json

import pytest

from made import lock_for
from verl_env.errors import UsageError
from verl_env.indexes import Indexes, MirrorExport
from verl_env.lock.locate import source_options
from verl_env.mirror_exports import asked_for
from verl_env.mirrors import AS_SET_UP, Measured, best_of, wheel_on, with_mirrors

ALIYUN = "https://mirrors.aliyun.com/pypi/simple/"


def fast(name, seconds=0.1, rate=10e6, error="") -> Measured:
    return Measured(name=name, seconds=seconds, rate=rate, error=error)


def test_every_set_has_places_or_variables(facts):
    """A name that would change nothing is a mistake in the data."""
    named = {it.name for source in facts.sources for it in source.mirrors}
    assert [] == [it.id for it in facts.mirror_sets if it.name not in named and not it.exports]
    assert set() == named - {it.name for it in facts.mirror_sets}


def test_a_set_replaces_the_default_and_keeps_what_was_set_up(facts):
    """The mirror is the default; the index that was set up before is asked after it."""
    found = with_mirrors(Indexes(default="https://ours.example/", extra=("https://x.example/",)), "aliyun", facts)
    assert (ALIYUN, ("https://ours.example/", "https://x.example/")) == (found.default, found.extra)


def test_an_index_that_was_asked_for_stays(facts):
    """`--index` is stronger than `--mirror`; PyTorch's mirror counts all the same."""
    found = with_mirrors(Indexes(default="https://ours.example/"), "aliyun", facts, asked=True)
    assert ("https://ours.example/", True) == (found.default, "pytorch-cu130" in found.mirrors)


def test_names_are_joined(facts):
    """Each name adds its part: one the packages, one PyTorch's wheels, one the models."""
    found = with_mirrors(Indexes(), "tsinghua, sjtu,hf-mirror", facts)
    exports = [(it.name, it.value) for it in found.exports]
    assert ("--index", "https://mirror.sjtu.edu.cn/pytorch-wheels/cu130/") == found.mirrors["pytorch-cu130"]
    assert (True, [("HF_ENDPOINT", "https://hf-mirror.com")]) == ("tsinghua" in found.default, exports)


def test_a_flat_page_is_given_as_one(facts):
    """A mirror that is a page of links is no simple index."""
    options = list(source_options("pytorch-cu130", (), with_mirrors(Indexes(), "aliyun", facts), facts))
    wanted = ("--find-links", "https://mirrors.aliyun.com/pytorch-wheels/cu130/")
    assert [wanted, ("--index", "https://download.pytorch.org/whl/cu130")] == options


def test_an_unknown_name_is_refused_with_the_nearest(facts):
    """A slip of the finger is told what was meant."""
    with pytest.raises(UsageError) as caught:
        with_mirrors(Indexes(), "tsingua", facts)
    assert "did you mean `tsinghua`?" in caught.value.hint


@pytest.mark.parametrize(
    ("measured", "taken"),
    [
        pytest.param([], None, id="nothing to choose"),
        pytest.param([fast(AS_SET_UP)], AS_SET_UP, id="nothing else"),
        pytest.param([fast(AS_SET_UP), fast("a", rate=11e6)], AS_SET_UP, id="hardly faster"),
        pytest.param([fast(AS_SET_UP), fast("a", rate=20e6)], "a", id="clearly faster"),
        pytest.param([fast(AS_SET_UP), fast("a", seconds=9.0, rate=20e6)], AS_SET_UP, id="slow to answer"),
        pytest.param([fast(AS_SET_UP, error="no"), fast("a", rate=1e5)], "a", id="what is set up does not answer"),
        pytest.param([fast(AS_SET_UP, error="no"), fast("a", error="no")], AS_SET_UP, id="nobody answers"),
        pytest.param([fast("a"), fast("b", rate=9e6)], "a", id="nothing set up"),
    ],
)
def test_best_of(measured, taken):
    """A mirror is taken when it is clearly faster than what is set up."""
    assert taken == best_of(measured)


@pytest.mark.parametrize(
    ("text", "kind", "found"),
    [
        pytest.param('<a href="a-1.whl#sha256=0">x</a><a href="../a-2.whl">', "text/html", "../a-2.whl", id="html"),
        pytest.param("<a href='a-1.tar.gz'>", "text/html", None, id="no wheel"),
        pytest.param(
            json.dumps({"files": [{"filename": "a-1.whl", "url": "u1"}, {"filename": "a.zip", "url": "u2"}]}),
            "application/vnd.pypi.simple.v1+json",
            "u1",
            id="json",
        ),
        pytest.param("[", "application/json", None, id="damaged"),
    ],
)
def test_wheel_on(text, kind, found):
    """The last wheel of a page is the one to measure with."""
    assert found == wheel_on(text, kind)


def test_exports_that_a_lock_can_use(facts, monkeypatch, capsys):
    """A variable whose package the lock lacks is not exported, and one that the user has set stays."""
    monkeypatch.setenv("SET", "by the user")
    indexes = Indexes(
        exports=(
            MirrorExport(name="PLAIN", value="1", why="--mirror a"),
            MirrorExport(name="WITH_VERL", value="2", why="--mirror a", needs="verl"),
            MirrorExport(name="VERL_USE_MODELSCOPE", value="True", why="--mirror b", needs="modelscope"),
            MirrorExport(name="SET", value="3", why="--mirror c"),
        )
    )
    found = [(it.name, it.value, it.why) for it in asked_for(indexes, lock_for(facts))]
    said = capsys.readouterr().err
    assert [("PLAIN", "1", "--mirror a"), ("WITH_VERL", "2", "--mirror a")] == found
    assert (True, True) == ("needs modelscope" in said, "SET is set already" in said)
