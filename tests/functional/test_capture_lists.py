"""What people paste becomes a lock, or an answer that names what cannot be had; and twenty things that are no list."""

from __future__ import annotations

import os

import pytest

from tiny import build_wheel
from verl_env.lock.read import read_lock

FREEZE = "torch==2.13.0\nverl==99.0\ntiny-sub==1.2\n"
COLLECT = """\
Collecting environment information...
PyTorch version: 2.13.0
CUDA used to build PyTorch: None
Python version: {python} (main) [GCC 13]
Versions of relevant libraries:
[pip3] torch==2.13.0
[pip3] verl==99.0
"""


def names(folder) -> list[str]:
    """Return what lies in a folder."""
    return sorted(it.name for it in folder.iterdir())


def give(tool, text, name="list.txt"):
    """Write a list outside of the folder that is worked in, and return its path."""
    path = tool.home / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_a_freeze_of_a_row_is_its_lock(tiny):
    """The same versions, found on the index, are the row's own files."""
    done = tiny("capture", "--from", give(tiny, FREEZE), "--json", "-o", "pylock.toml")
    assert done.code == 0, done.err
    assert ("tiny", []) == (done.json["data"]["nearest"], done.json["data"]["differences"])
    assert "tiny" == read_lock(tiny.work / "pylock.toml").table.row


def test_a_freeze_with_more_is_a_lock_of_its_own(tiny, wheels):
    """What differs from the nearest row is said, and the lock gives these versions."""
    build_wheel(wheels["torch"].parent, "extra-thing", "1.0")
    done = tiny("capture", "--from", give(tiny, FREEZE + "extra-thing==1.0\n"), "--json")
    assert done.code == 0, done.err
    data = done.json["data"]
    assert [("rest", "extra-thing", "1.0", None)] == [
        (it["group"], it["name"], it["left"], it["right"]) for it in data["differences"]
    ]
    lock = read_lock(tiny.work / "pylock.captured.toml")
    assert ("captured", "tiny", 4) == (lock.table.row, lock.table.captured.nearest, len(lock.pins))


def test_a_report_is_resolved(tiny, site):
    """A report names a few packages; what they need is found."""
    python = next(iter(site.folder.glob("pins/*.toml"))).name.split("-cp3")[1].split("-")[0]
    text = COLLECT.format(python=f"3.{python}.1")
    done = tiny("capture", "--from", give(tiny, text), "--json", "-o", "pylock.toml")
    assert done.code == 0, done.err
    assert {"torch", "verl", "tiny-sub"} == {it["name"] for it in done.json["data"]["packages"]}


def test_what_is_gone_is_named(tiny):
    """A version that no index has, one that nobody published, one of another index."""
    text = FREEZE + "tiny-sub-two==1\nmine==1.0+g1234567\n"
    done = tiny("capture", "--from", give(tiny, text), "--json")
    assert 5 == done.code
    assert {"tiny-sub-two": "not-on-index", "mine": "own-build"} == {
        it["name"]: it["reason"] for it in done.json["data"]["unavailable"]
    }
    assert [] == names(tiny.work)


def test_no_lock_asks_no_index(tiny):
    """With --no-lock, a report is understood without a network."""
    tiny.index.stop()
    done = tiny("capture", "--from", give(tiny, FREEZE), "--no-lock", "--json")
    assert (0, "tiny", None) == (done.code, done.json["data"]["nearest"], done.json["data"]["file"])


def test_stdin(tiny):
    """A report can be piped in; an empty one is an error."""
    assert 2 == tiny("capture", "--from", "-").code


MALFORMED = [
    pytest.param("list.txt", b"", id="empty"),
    pytest.param("list.txt", b"\x00\x01\x02torch==2.6.0\n", id="NUL bytes"),
    pytest.param("list.txt", "torch==2.6.0 é\n".encode("latin-1"), id="latin-1"),
    pytest.param("list.txt", b"\xff\xfet\x00o\x00r", id="UTF-16 cut off"),
    pytest.param("list.txt", b"\x7fELF" + bytes(range(256)), id="a program"),
    pytest.param("list.txt", b"PK\x03\x04" + b"\xfe" * 40, id="an archive"),
    pytest.param("list.txt", b"<html><body>404</body></html>\n", id="a web page"),
    pytest.param("list.txt", b"it does not work, please help\n", id="prose"),
    pytest.param("list.txt", b"# a comment\n\n", id="comments"),
    pytest.param("list.txt", b"-r list.txt\n", id="includes itself"),
    pytest.param("list.txt", b"-r gone.txt\n", id="includes what is gone"),
    pytest.param("list.txt", b"--index-url https://me:hunter2@index.example/simple\n", id="only an index"),
    pytest.param("list.txt", b"https://me:hunter2@index.example/\n", id="only a URL"),
    pytest.param("list.json", b'[{"name": "torch"', id="JSON cut off"),
    pytest.param("list.json", b'[{"name": 3}]', id="JSON without names"),
    pytest.param("uv.lock", b'version = 1\n[[package]]\nname = "tor', id="uv.lock cut off"),
    pytest.param("uv.lock", b"version = 1\n[[package]]\nversion = 1\n", id="uv.lock without names"),
    pytest.param("pylock.toml", b'lock-version = "1.0"\n[[packages]]\n', id="pylock without names"),
    pytest.param("pylock.toml", b'lock-version = "9.0"\ncreated-by = "x"\npackages = []\n', id="pylock of the future"),
    pytest.param("pylock.toml", b'lock-version = "1.0"\ncreated-by = "x"\npackages = []\n', id="pylock of nothing"),
    pytest.param("environment.yml", b"name: x\ndependencies: []\n", id="conda, empty"),
    pytest.param("report.txt", b"PyTorch version: N/A\n[conda] Could not collect\n", id="a report of nothing"),
]


@pytest.mark.parametrize(("name", "content"), MALFORMED)
def test_what_is_no_list_gives_one_error(tiny, name, content):
    """One clear error with a hint, a documented code, nothing secret, and no file."""
    path = give(tiny, content, name)
    done = tiny("capture", "--from", path)
    assert done.code in (2, 10), (done.code, done.err)
    assert (1, True) == (done.err.count("error: "), "hint: " in done.err)
    assert [False, False] == ["Traceback" in done.err, "hunter2" in done.out + done.err]
    assert ("", []) == (done.out, names(tiny.work))


def test_a_folder_and_a_huge_file(tiny):
    """A folder is no list, and neither is a file that cannot be one by its size."""
    huge = tiny.home / "huge.txt"
    with huge.open("wb") as stream:
        stream.truncate(40_000_000)
    for place, words in ((tiny.home, "is a folder"), (huge, "too large"), (tiny.home / "gone", "cannot be read")):
        done = tiny("capture", "--from", place)
        assert (2, True) == (done.code, words in done.err)


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("gone",), id="no such thing"),
        pytest.param(("/etc",), id="a folder without packages"),
        pytest.param(("/etc/hostname",), id="a file that is no Python"),
        pytest.param((".", "--from", "x"), id="both"),
        pytest.param((".", "--name", "Not A Name"), id="an odd name"),
    ],
)
def test_what_is_no_environment(tiny, words):
    """One clear error."""
    done = tiny("capture", *words)
    assert (2, 1, "") == (done.code, done.err.count("error: "), done.out)


@pytest.mark.parametrize("how", ["an index of links alone", "a folder of wheels"])
def test_sizes_that_no_index_states(tiny, serve, wheels, how):
    """An old index states no size, and neither does a folder: the lock has it all the same."""
    folder = wheels["torch"].parent
    if how == "a folder of wheels":
        tiny.index.stop()
        options = {"UV_FIND_LINKS": str(folder), "UV_OFFLINE": "1"}
    else:
        tiny.index, options = serve(folder, html=True), {}
    done = tiny("capture", "--from", give(tiny, "tiny-sub==1.2\n"), "--python", "3.12", "-o", "pylock.toml", **options)
    assert 0 == done.code, done.err
    lock = read_lock(tiny.work / "pylock.toml")
    (pin,) = lock.pins
    assert wheels["tiny-sub"].stat().st_size == pin.size
    if how == "a folder of wheels":  # a path of this machine is none of another's
        assert os.path.relpath(wheels["tiny-sub"], tiny.work.resolve()) == lock.urls[pin.file]
    assert 0 == tiny("lock", "--check").code
