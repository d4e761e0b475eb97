"""`--mirror` against indexes on loopback: named, measured, refused by hash, and what it asks for in the exports."""

from __future__ import annotations

import json
import shutil

import pytest

from tiny import Index, build_wheel, serve_index


@pytest.fixture
def mirrored(tool, site, wheels, tmp_path):
    """Return verl-env with three indexes of the same wheels: what is set up, a mirror `near` and one that is `far`."""
    indexes = {}
    for name in ("own", "near", "far"):
        folder = tmp_path / name
        folder.mkdir()
        for wheel in ("torch", "verl", "tiny-sub"):
            shutil.copy(wheels[wheel], folder)
        build_wheel(folder, "pip", "99.0", files={"pip/data.txt": "0" * 3_000_000})
        indexes[name] = serve_index(Index(folder=folder))
    site.write(
        "mirrors.toml",
        f"""
[source.default]
where = "tests"
mirrors = [{{ name = "Near", url = "{indexes["near"].url}" }}, {{ name = "Far", url = "{indexes["far"].url}" }}]
[source.pytorch-cpu]
where = "tests"
[mirror.near]
name = "Near"
where = "tests"
exports = {{ HF_ENDPOINT = "https://models.example" }}
[mirror.far]
name = "Far"
where = "tests"
""",
    )
    tool.site, tool.index, tool.indexes = site, indexes["own"], indexes
    yield tool
    for index in indexes.values():
        index.stop()


def fetched(index) -> list[str]:
    return sorted({path for path in index.asked if path.startswith("/files/") and "pip-" not in path})


def test_a_named_mirror_serves_the_files(mirrored):
    """Every file comes from the mirror, what it asks for is exported, and the receipt says who asked."""
    done = mirrored("install", "--cpu", "--mirror", "near")
    assert 0 == done.code, done.err
    exports = json.loads((mirrored.current / "verl-env-receipt.json").read_text())["exports"]
    asked = [(it["value"], it["why"]) for it in exports if it["name"] == "HF_ENDPOINT"]
    assert [("https://models.example", "--mirror near")] == asked
    assert (True, []) == (len(fetched(mirrored.indexes["near"])) >= 3, fetched(mirrored.indexes["far"]))


def test_auto_says_what_it_took(mirrored):
    """What does not answer in time is not taken, and every place is named with its figures."""
    for name in ("own", "far"):
        mirrored.indexes[name].gated = "pip"
    done = mirrored("install", "--cpu", "--mirror", "auto")
    assert 0 == done.code, done.err
    said = next(line for line in done.err.splitlines() if line.startswith("--mirror auto, default"))
    assert (True, True, True) == (
        "default: near (near:" in said,
        "as set up: no answer" in said,
        "far: no answer" in said,
    )
    assert len(fetched(mirrored.indexes["near"])) >= 3


def test_a_mirror_with_another_file_is_refused(mirrored, tmp_path):
    """A mirror that serves other bytes under a name is no way to change what is installed."""
    verl = next((tmp_path / "near").glob("verl-*"))
    mirrored.indexes["near"].hashes[verl.name] = "0" * 64
    mirrored.indexes["own"].stop()
    done = mirrored("install", "--cpu", "--mirror", "near")
    assert (5, True, False) == (done.code, "is another file here" in done.err, mirrored.current.exists()), done.err


def test_an_unknown_mirror_is_named(mirrored):
    """A name that is not known is refused with the nearest and all that are."""
    done = mirrored("install", "--cpu", "--mirror", "nere")
    assert (2, True) == (done.code, "did you mean `near`?" in done.err), done.err


def test_no_login_is_written_or_printed(mirrored, tmp_path):
    """A mirror's login works and is in nothing that was written or said."""
    mirrored.indexes["near"].stop()
    mirrored.indexes["near"] = serve_index(Index(folder=tmp_path / "near", login="reader:s3cret-word"))
    text = (mirrored.site.folder / "mirrors.toml").read_text()
    old = next(line for line in text.splitlines() if "Near" in line and "url" in line).split('"')[3]
    mirrored.site.write("mirrors.toml", text.replace(old, mirrored.indexes["near"].url))
    done = mirrored("install", "--cpu", "--mirror", "near", "-v")
    assert 0 == done.code, done.err
    written = [it for it in mirrored.home.rglob("*") if it.is_file() and not it.is_symlink()]
    assert [] == [str(it) for it in written if b"s3cret-word" in it.read_bytes()]
    assert "s3cret-word" not in done.out + done.err
