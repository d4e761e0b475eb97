"""A lock that is written is always a valid PEP 751 file and reads back equal; anything else is one LockError."""

from __future__ import annotations

import string
from dataclasses import replace
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.pylock import Pylock

from verl_env import toml
from verl_env.errors import LockError, UsageError
from verl_env.lock.compare import compare_locks
from verl_env.lock.lockfile import SCHEMA, Lock, Table, parse_lock, parse_unjudged, render_lock, sealed
from verl_env.lock.requirements_file import parse_requirements
from verl_env.lock.table import Asked, AskedFile, Editable
from verl_env.matrix.pins import Pin

HEX = st.text("0123456789abcdef", min_size=64, max_size=64)
NAMES = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,12}[a-z0-9])?", fullmatch=True).filter(lambda it: "--" not in it)
VERSIONS = st.from_regex(r"[0-9]{1,3}(\.[0-9]{1,3}){0,3}(rc[0-9])?(\.post[0-9])?(\+cu[0-9]{3})?", fullmatch=True)
TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=30)
KEYS = st.one_of(NAMES, TEXT.filter(bool))
LINES = st.lists(TEXT, max_size=3).map(tuple)
SIZES = st.integers(0, 2**60)


@st.composite
def pins_of(draw):
    """Return a pin whose file has its name and version, as indexes have it."""
    name, version = draw(NAMES), draw(VERSIONS)
    stem = f"{name.replace('-', '_')}-{version}"
    file = f"{stem}.tar.gz" if draw(st.booleans()) else f"{stem}-py3-none-any.whl"
    return Pin(name=name, version=version, file=file, size=draw(SIZES), sha256=draw(HEX))


@st.composite
def tables(draw):
    """Return any table: free text wherever somebody's text may stand."""
    asked = st.builds(
        Asked,
        wishes=LINES,
        files=st.lists(st.builds(AskedFile, name=TEXT, lines=LINES), max_size=2).map(tuple),
        upgrade=LINES,
        resolve=st.booleans(),
        exclude_newer=st.none() | st.dates(date(2000, 1, 1)),
    )
    editable = st.builds(
        Editable,
        name=NAMES,
        path=TEXT,
        version=st.none() | TEXT,
        commit=st.none() | HEX,
        remote=st.none() | TEXT,
        dirty=st.booleans(),
        pushed=st.booleans(),
        dependencies=st.none() | LINES,
    )
    return Table(
        schema=SCHEMA,
        digest="",
        row=draw(NAMES),
        title=draw(TEXT),
        python="3.12",
        arch="x86_64",
        imports=draw(LINES),
        glibc=draw(st.none() | TEXT),
        installed_bytes=draw(SIZES),
        set=draw(st.dictionaries(KEYS, TEXT, max_size=3)),
        exports=draw(st.dictionaries(KEYS, TEXT, max_size=3)),
        settings=draw(LINES),
        build=tuple(draw(st.lists(pins_of(), max_size=1))),
        added=draw(LINES),
        moved=draw(st.dictionaries(KEYS, TEXT, max_size=2)),
        unproven=draw(st.none() | TEXT),
        allow=draw(LINES),
        asked=draw(st.none() | asked),
        editable=draw(st.none() | editable),
    )


@st.composite
def locks(draw):
    """Return any lock: packages by name, each with a URL or a path."""
    pins = draw(st.lists(pins_of(), max_size=4, unique_by=lambda it: it.name))
    place = st.sampled_from(("https://index.example/files/", "https://index.example/a%20b/", "../wheels/"))
    urls = {
        pin.file: draw(place) + pin.file.replace("+", draw(st.sampled_from("+%"))).replace("%", "%2B") for pin in pins
    }
    urls = {file: url if "://" in url else url.replace("%2B", "+") for file, url in urls.items()}
    ordered = tuple(sorted(pins, key=lambda it: it.name))
    return sealed(Lock(table=draw(tables()), pins=ordered, urls=urls))


@given(locks())
def test_text_and_back(lock):
    """Whatever a lock holds, its text is PEP 751, reads back equal, and differs from itself in nothing."""
    text = render_lock(lock)
    document = Pylock.from_dict(toml.loads(text))
    assert [(pin.name, pin.version) for pin in lock.pins] == [
        (it.name, str(toml_version(it))) for it in document.packages
    ]
    assert lock == parse_lock(text, "x") == parse_unjudged(text, "x")
    assert text == render_lock(parse_lock(text, "x"))
    logins = replace(lock, urls=lock.urls)
    assert [] == [it for it in compare_locks(lock, logins, text) if it.kind != "url"]


def toml_version(package):
    """Return a package's version as the file spells it."""
    return package.version if package.version is None else _spelled(package)


def _spelled(package):
    file = package.sdist or package.wheels[0]
    stem = (file.name or (file.url or file.path).replace("%2B", "+").rsplit("/", 1)[-1]).removesuffix(".tar.gz")
    return stem.split("-")[1]


def read(text, **options):
    """Return the lock in a text, or the one error that a reader may raise."""
    try:
        return parse_lock(text, "x", **options)
    except LockError as err:
        return err


@given(locks(), st.data())
def test_cut(lock, data):
    """A lock that was cut anywhere is a LockError, or still the same lock."""
    text = render_lock(lock)
    end = data.draw(st.integers(0, len(text)))
    found = read(text[:end])
    assert lock == found if isinstance(found, Lock) else found.hint


@given(locks(), st.data())
def test_mutated(lock, data):
    """A lock in which anything was put in place of anything is a LockError or a lock; comparing it never fails."""
    text = render_lock(lock)
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 40)))
    put = data.draw(
        st.sampled_from(('"', "[", "{}", "=", "\n", "3", "[[packages]]\n", "true", "\\u", "https://u@[", "")) | TEXT
    )
    changed = text[:start] + put + text[end:]
    parse_unjudged(changed, "x")
    found = read(changed, tampered=True)
    if isinstance(found, LockError):
        assert found.hint
        return
    same = compare_locks(found, lock, changed) == compare_locks(lock, lock, text)
    assert same or changed != text
    # A URL is whatever index the lock was written with: another one is the only change that is no difference.
    assert not same or changed == render_lock(replace(lock, urls=found.urls))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT,
    lambda it: st.lists(it, max_size=3) | st.dictionaries(TEXT, it, max_size=3),
)


@given(
    st.dictionaries(
        st.sampled_from(("schema", "digest", "row", "asked", "editable", "build", "set", "imports", "python")), VALUES
    )
)
def test_any_table(facts_of_table):
    """Whatever stands in the table, reading it is a LockError or a lock."""
    import tomlkit

    document = {"lock-version": "1.0", "created-by": "x", "packages": [], "tool": {"verl-env": clean(facts_of_table)}}
    found = read(tomlkit.dumps(document))
    assert isinstance(found, Lock) or found.message.startswith("`x`")


def clean(value):
    """Leave out what TOML cannot say."""
    if isinstance(value, dict):
        return {key: clean(it) for key, it in value.items() if it is not None}
    if isinstance(value, list):
        return [clean(it) for it in value if it is not None]
    return max(min(value, 2**63 - 1), -(2**63)) if type(value) is int else value


WORDS = st.sampled_from(
    (
        "-r ",
        "-c ",
        "a.txt",
        "b.txt",
        "peft",
        ">=1",
        "; ",
        "python_version",
        "--hash=",
        "sha256:",
        "#",
        "\\",
        "\n",
        " ",
        "@ ",
        "https://u:p@h/",
        "[x]",
        "${A}",
        "-e ",
        "-i ",
    )
)


@given(
    st.fixed_dictionaries(
        {name: st.lists(WORDS | st.sampled_from(string.printable)).map("".join) for name in ("a.txt", "b.txt")}
    )
)
def test_any_requirements_file(files):
    """Whatever stands in requirements files, reading them is a usage error with a hint, or wishes that read back."""

    def content(name):
        if name not in files:
            raise UsageError(f"`{name}` is not there", hint="name another")
        return files[name]

    try:
        wishes = parse_requirements("a.txt", content)
    except UsageError as err:
        assert err.hint  # noqa: PT017 - either outcome is right
    else:
        lines = [it.line for it in wishes]
        assert lines == [f"-c {it.text}".strip() + rest(it) if it.constraint else it.text + rest(it) for it in wishes]


def rest(wish):
    """Return a wish's hashes as its line has them."""
    return "".join(f" --hash={it}" for it in wish.hashes)


def test_deep_nesting():
    """A document that is nested deeper than Python recurses is a LockError."""
    with pytest.raises(LockError):
        parse_lock("a = " + "[" * 100_000, "x")
    assert parse_unjudged("a = " + "[" * 100_000, "x") is None
