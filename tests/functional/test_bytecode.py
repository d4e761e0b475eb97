"""Bytecode: compiled once on a machine, linked into the next environment, and never trusted where it is not right."""

from __future__ import annotations

import pytest

from tiny import build_wheel


def cached(environment):
    """Return the bytecode of verl's own module in an environment."""
    return next(environment.glob("lib/*/site-packages/verl/__pycache__/__init__.*.pyc"))


def kept(tiny):
    """Return the same file where it is kept."""
    return next((tiny.data / "cache/bytecode").glob("*/*/verl/__pycache__/__init__.*.pyc"))


@pytest.fixture
def first(tiny):
    """Return the first environment, whose bytecode was compiled."""
    done = tiny("install", "--cpu", "--row", "tiny")
    assert 0 == done.code, done.err
    return tiny.current.resolve()


@pytest.fixture
def second(tiny, wheels, serve, tmp_path):
    """Return a function that installs a row with the same wheels and one more, whose module is no Python."""
    files = {"late/__init__.py": "", "late/template.py": "class {{ name }}:\n"}
    folder = tmp_path / "wheels"
    late = build_wheel(folder, "late", "1.0", files=files)
    chosen = [wheels[name] for name in ("torch", "verl", "tiny-sub")]
    for it in chosen:
        (folder / it.name).write_bytes(it.read_bytes())
    tiny.site.add_row("later", [*chosen, late])

    def install():
        tiny.index = serve(folder)
        done = tiny("install", "--cpu", "--row", "later")
        assert 0 == done.code, done.err
        assert 0 == tiny("verify", "--deep").code
        return tiny.current.resolve()

    return install


def test_the_next_environment_is_given_what_was_compiled(first, second):
    """The same wheel's bytecode is one file in both environments; what is no Python of this version is left."""
    made = second()
    assert first != made
    assert cached(first).stat().st_ino == cached(made).stat().st_ino
    assert ["__init__"] == [it.name.split(".")[0] for it in made.glob("lib/*/site-packages/late/__pycache__/*")]


@pytest.mark.parametrize("harm", ["contents", "gone"])
def test_what_was_changed_since_is_compiled_anew(tiny, first, second, harm):
    """Kept bytecode that is not what its listing says is thrown away, and the source decides."""
    right = cached(first).read_bytes()
    harmed = kept(tiny)
    harmed.unlink()
    if harm == "contents":
        harmed.write_bytes(right[:16] + b"evil" + right[20:])
    assert right == cached(second()).read_bytes()


@pytest.mark.usefixtures("first")
def test_bytecode_of_another_source_is_not_linked(tiny, second):
    """The hash of the source is in the bytecode: of another source it is compiled anew, whatever its listing says."""
    harmed = kept(tiny)
    right = harmed.read_bytes()
    harmed.unlink()
    harmed.write_bytes(right[:8] + b"\0" * 8 + right[16:])
    listing = next(it / "listing" for it in harmed.parents if (it / "listing").exists())
    changed = str(harmed.stat().st_mtime_ns)
    lines = [line.split(" ", 3) for line in listing.read_text().splitlines()]
    listing.write_text("".join(f"{digest} {size} {changed} {path}\n" for digest, size, _, path in lines))
    assert right[8:16] == cached(second()).read_bytes()[8:16]


def test_prune_removes_what_no_environment_has(tiny, first, second):
    """With the last environment that has a wheel its bytecode goes, and no earlier."""
    made = second()
    assert 0 == tiny("prune", first.name).code
    assert kept(tiny).stat().st_ino == cached(made).stat().st_ino
    done = tiny("install", "--cpu", "--row", "tiny")
    assert 0 == done.code, done.err
    assert 0 == tiny("prune", made.name).code
    assert [] == list((tiny.data / "cache/bytecode").glob("*/*/late"))
