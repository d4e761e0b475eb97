"""Wishes: how they are read, and how they are held against versions."""

from __future__ import annotations

import pytest

from made import pins_for
from verl_env.errors import ResolveError, UsageError
from verl_env.lock.wishes import applying, parse_wish, refuse_clashes, refuse_wrong_files, unmet, versions_of

PINS = {"torch": ("2.11.0", "2.11.0+cu130"), "numpy": ("2.3.5",), "cwevals": ("0.0.1b1",)}


@pytest.mark.parametrize(
    ("text", "met"),
    [
        pytest.param("numpy>=2", True, id="a range that holds"),
        pytest.param("numpy<2", False, id="a range that does not"),
        pytest.param("NumPy>=2", True, id="another spelling of the name"),
        pytest.param("torch==2.11.0+cu130", True, id="the row's spelling of a build"),
        pytest.param("torch==2.11.0", True, id="the index's spelling"),
        pytest.param("torch==2.11.0+cu129", False, id="another build"),
        pytest.param("cwevals", True, id="a pre-release that is pinned"),
        pytest.param("peft>=0.13", False, id="not there"),
    ],
)
def test_held_against_versions(text, met):
    """A wish is met by the version that is there, in any of its spellings."""
    assert met == (unmet([parse_wish(text, "--with")], PINS) == ())


def test_a_constraint_asks_for_nothing():
    """A constraint on a package that is absent is met; on one that is there it counts."""
    absent, broken = (parse_wish(it, "c.txt:1", constraint=True) for it in ("peft>=1", "numpy<2"))
    assert (broken,) == tuple(it.wish for it in unmet([absent, broken], PINS))


@pytest.mark.parametrize(
    ("marker", "applies"),
    [
        pytest.param("python_version < '3.12'", False, id="an older Python"),
        pytest.param("sys_platform == 'linux'", True, id="Linux"),
        pytest.param("platform_machine == 'aarch64'", False, id="another architecture"),
        pytest.param("extra == 'x'", False, id="an extra that nobody asked for"),
    ],
)
def test_markers_are_the_locks(marker, applies):
    """Markers are evaluated for where the lock will be installed, not for this machine."""
    wish = parse_wish(f"peft; {marker}", "--with")
    assert ((wish,) if applies else ()) == applying([wish], "3.12", "x86_64")


@pytest.mark.parametrize(
    "text", ["", "peft>>1", "peft @ https://user:secret@index.example/peft.whl", "../peft", "a b", "peft>=1 --pre"]
)
def test_what_is_no_wish(text):
    """What cannot be a wish is a usage error that names where it was, and no login."""
    with pytest.raises(UsageError) as raised:
        parse_wish(text, "extra.txt:3")
    assert "extra.txt:3" in raised.value.message
    assert "secret" not in raised.value.message
    assert raised.value.hint


def test_a_clash_names_pin_and_wish():
    """The refusal names the wish, where it came from, the pin and the way out."""
    clashes = unmet([parse_wish("numpy<2", "extra.txt:1")], PINS)
    with pytest.raises(ResolveError) as raised:
        refuse_clashes(clashes, "some-row", {"numpy": "2.3.5"})
    assert ("`numpy<2` (extra.txt:1): numpy is 2.3.5, which row some-row pins",) == raised.value.details
    assert "--upgrade-package numpy" in raised.value.hint


def test_hashes_of_a_wish():
    """A wish with hashes is met by a file that has one of them, and by no other."""
    pins = pins_for().pins
    good = parse_wish("verl", "x:1", hashes=("sha256:" + "a" * 64, "sha256:" + "e" * 64))
    assert refuse_wrong_files((good,), pins) is None
    with pytest.raises(ResolveError, match="has none of them"):
        refuse_wrong_files((parse_wish("verl", "x:1", hashes=("sha256:" + "e" * 64,)),), pins)


def test_one_line_and_back():
    """A wish's line has its marker, hashes and kind."""
    wish = parse_wish("Peft[x] >= 0.13 ; python_version>'3.8'", "a:1", hashes=("sha256:" + "a" * 64,), constraint=True)
    assert f'-c Peft[x]>=0.13; python_version > "3.8" --hash=sha256:{"a" * 64}' == wish.line


def test_spellings_of_a_version():
    """Only a local label that the file's version lacks is another spelling; another version is not."""
    pins = pins_for().pins
    found = versions_of(pins, {"torch": "2.11.0+cu130", "verl": "0.9.1+mine", "antlr4-python3-runtime": "4.9.2"})
    assert {
        "torch": ("2.11.0+cu130",),
        "verl": ("0.9.1", "0.9.1+mine"),
        "antlr4-python3-runtime": ("4.9.3",),
    } == found
