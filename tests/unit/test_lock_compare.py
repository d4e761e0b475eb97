"""A lockfile held against what would be written: each difference in words, with its line."""

from __future__ import annotations

from dataclasses import replace

import pytest

from made import lock_for, pins_for
from verl_env.lock.annotate import workflow_commands
from verl_env.lock.compare import Difference, compare_locks, url_fault
from verl_env.lock.lockfile import parse_lock, render_lock, sealed
from verl_env.matrix.pins import Pin


@pytest.fixture
def lock(facts):
    """Return what would be written."""
    return lock_for(facts, exports={"NCCL_CUMEM_ENABLE": "0"})


def compared(found, expected, text=None):
    """Return the differences of a lock that somebody committed."""
    text = render_lock(found) if text is None else text
    return compare_locks(parse_lock(text, "x", tampered=True), expected, text)


def kinds(found, expected, text=None):
    """Return the kind and subject of each difference."""
    return [(it.kind, it.what) for it in compared(found, expected, text)]


def changed(lock, name, **parts):
    """Return the lock with one pin changed, sealed again."""
    pins = tuple(replace(pin, **parts) if pin.name == name else pin for pin in lock.pins)
    urls = {pin.file: f"https://one.invalid/{pin.file.replace('+', '%2B')}" for pin in pins}
    return sealed(replace(lock, pins=pins, urls=urls))


def test_no_difference(lock):
    """What would be written differs in nothing, from whatever index its URLs are."""
    assert [] == kinds(lock, lock)
    elsewhere = replace(lock, urls={file: f"https://two.invalid/x/{file.replace('+', '%2B')}" for file in lock.urls})
    assert [] == kinds(elsewhere, lock)


@pytest.mark.parametrize(
    ("parts", "kind"),
    [
        pytest.param({"version": "0.9.0", "file": "verl-0.9.0-py3-none-any.whl"}, "version", id="version"),
        pytest.param({"file": "verl-0.9.1-1-py3-none-any.whl"}, "file", id="file"),
        pytest.param({"sha256": "e" * 64}, "hash", id="hash"),
        pytest.param({"size": 12}, "file", id="size"),
    ],
)
def test_changed_package(lock, parts, kind):
    """A package that changed is one difference of the largest kind, at the line of its name."""
    other = changed(lock, "verl", **parts)
    (found,) = [it for it in compared(other, lock) if it.kind != "table"]
    assert (kind, "verl") == (found.kind, found.what)
    assert 'name = "verl"' == render_lock(other).splitlines()[found.line - 1]


def test_added_and_removed(lock):
    """A package too many and one too few are named with their versions."""
    extra = Pin(name="peft", version="1", file="peft-1-py3-none-any.whl", size=1, sha256="f" * 64)
    pins = (*(pin for pin in lock.pins if pin.name != "verl"), extra)
    other = sealed(replace(lock, pins=pins, urls={**lock.urls, extra.file: f"https://one.invalid/{extra.file}"}))
    found = {it.kind: it.text for it in compared(other, lock) if it.kind in ("added", "removed")}
    assert {
        "added": "peft 1 is in the file, and nothing asks for it",
        "removed": "verl 0.9.1 is missing from the file",
    } == found


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        pytest.param({"row": "b"}, [("row", "row")], id="row"),
        pytest.param({"python": "3.11"}, [("python", "python")], id="Python"),
        pytest.param({"driver": "570"}, [("table", "driver")], id="driver"),
        pytest.param(
            {"exports": {"NCCL_CUMEM_ENABLE": "1", "A": "2"}},
            [("table", "exports.A"), ("table", "exports.NCCL_CUMEM_ENABLE")],
            id="exports",
        ),
        pytest.param({"imports": ("torch", "verl", "peft")}, [("table", "imports")], id="a list"),
        pytest.param({"sources": {}}, [("file", "torch"), ("table", "sources.torch")], id="sources"),
        pytest.param({"download_bytes": 5}, [("table", "download-bytes")], id="size"),
    ],
)
def test_changed_table(lock, parts, expected):
    """Each key of the table that differs is named, and each entry of a table in it."""
    other = sealed(replace(lock, table=replace(lock.table, **parts)))
    assert expected == kinds(other, lock)


def test_a_list_shows_what_differs(lock):
    """Of a list only the entries that differ are shown."""
    other = sealed(replace(lock, table=replace(lock.table, imports=("torch", "peft"))))
    (found,) = compared(other, lock)
    assert "imports: `['peft']` in the file, and should be `['verl']`" == found.text
    assert render_lock(other).splitlines()[found.line - 1].startswith("imports = ")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param('digest = "sha256:', 'digest = "sha256:0', [("digest", "digest")], id="digest"),
        pytest.param(
            'name = "verl"\n', 'name = "verl"\nmarker = "python_version < \'3\'"\n', [("text", "text")], id="marker"
        ),
        pytest.param("[tool.verl-env]", "# mine\n[tool.verl-env]", [("text", "text")], id="comment"),
        pytest.param('created-by = "verl-env"', 'created-by = "me"', [("text", "text")], id="writer"),
        pytest.param(
            "https://one.invalid/files/verl-0.9.1-",
            "https://u:p@one.invalid/files/verl-0.9.1-",
            [("url", "verl")],
            id="login",
        ),
        pytest.param(
            'url = "https://one.invalid/files/verl-0.9.1-py3',
            'name = "verl-0.9.1-py3-none-any.whl", url = "https://one.invalid/files/evil-0.9.1-py3',
            [("url", "verl")],
            id="URL of another file",
        ),
    ],
)
def test_changed_text(lock, old, new, expected):
    """What no value shows is found by its bytes: other installers read markers that we do not."""
    text = render_lock(lock)
    assert old in text
    assert expected == kinds(lock, lock, text.replace(old, new, 1))


@pytest.mark.parametrize(
    ("url", "said"),
    [
        pytest.param("https://index.example/a/verl-1%2Bcu-py3-none-any.whl", None, id="percent-encoded"),
        pytest.param("https://index.example/a/verl-1+cu-py3-none-any.whl", None, id="plain"),
        pytest.param("https://index.example/blob/0a1b2c", None, id="a server's own name"),
        pytest.param("../wheels/verl-1+cu-py3-none-any.whl", None, id="path"),
        pytest.param("", "no URL", id="none"),
        pytest.param("https:///verl-1+cu-py3-none-any.whl", "with a host", id="no host"),
        pytest.param("ftp://index.example/verl-1+cu-py3-none-any.whl", "with a host", id="another scheme"),
        pytest.param("https://[::1/verl-1+cu-py3-none-any.whl", "cannot be parsed", id="broken"),
        pytest.param("https://me:secret@index.example/verl-1+cu-py3-none-any.whl", "user name or password", id="login"),
        pytest.param(
            "https://index.example/verl-2-py3-none-any.whl",
            "its URL is of `verl-2-py3-none-any.whl`",
            id="another file",
        ),
        pytest.param("https://index.example/", "its URL is of ``", id="a folder"),
    ],
)
def test_urls(url, said):
    """A URL is well-formed, of the right file, and has no login; the message never repeats a secret."""
    found = url_fault(url, "verl-1+cu-py3-none-any.whl")
    assert (said is None) == (found is None), found
    assert said is None or said in found
    assert "secret" not in (found or "")


def test_annotations_are_escaped():
    """A workflow command holds what it says on one line, and a property no colon or comma."""
    difference = Difference(kind="table", what="a", text="50% of\na,b:c", line=7)
    assert ("::error file=a%3Ab%2Cc.toml,line=7,title=lockfile differs::50%25 of%0Aa,b:c",) == workflow_commands(
        "a:b,c.toml", [difference]
    )


@pytest.mark.parametrize(("count", "lines", "last"), [(10, 10, "9"), (11, 10, "and 2 more differences; see the log")])
def test_annotations_are_at_most_ten(count, lines, last):
    """GitHub shows ten errors of a step: of more, the tenth says how many."""
    found = workflow_commands("x", [Difference(kind="table", what="a", text=str(it)) for it in range(count)])
    assert (lines, last) == (len(found), found[-1].rsplit("::", 1)[-1])


def test_sources_are_compared(facts):
    """The same file from another source is a difference."""
    one = lock_for(facts)
    pins = pins_for()
    moved = replace(pins, pins=tuple(replace(pin, source="default") for pin in pins.pins))
    assert [("file", "torch"), ("table", "sources.torch")] == kinds(lock_for(facts, moved), one)
