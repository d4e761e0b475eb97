"""Bundles as bytes: where everything lies, what is refused, pieces and frames."""

from __future__ import annotations

import hashlib
import io
import tarfile

import pytest

from verl_env.bundle import frames
from verl_env.bundle.layout import BundleError, Manifest, Member, parse_manifest, placed, render_manifest, total_bytes
from verl_env.bundle.pieces import PieceReader, PieceWriter, find_pieces
from verl_env.bundle.read import Bundle
from verl_env.bundle.unfinished import Unfinished, unfinished_manifest
from verl_env.bundle.write import Content, write_bundle

DIGEST = "sha256:" + "0" * 64


def member_of(path, content) -> Member:
    return Member(path=path, size=len(content), sha256=hashlib.sha256(content).hexdigest())


FILES = {
    "start.sh": b"#!/bin/sh\n",
    "pylock.tiny.toml": b"x = 1\n",
    "wheels/a-1-py3-none-any.whl": bytes(range(256)) * 1500,
    "wheels/" + "long_" * 30 + "-1-py3-none-any.whl": b"1" * 513,
    "wheels/empty-1-py3-none-any.whl": b"",
}


def manifest_of(files=FILES, **parts) -> Manifest:
    laid = {
        "schema": 1,
        "by": "tests",
        "row": "tiny",
        "title": "tiny",
        "digest": DIGEST,
        "lock": "pylock.tiny.toml",
        "python": "3.12",
        "arch": "x86_64",
        "members": tuple(member_of(path, content) for path, content in files.items()),
    }
    return Manifest(**(laid | parts))


def write(target, *, limit=None, files=FILES, contents=None):
    contents = contents or {path: Content(data=content) for path, content in files.items()}
    return write_bundle(target, manifest_of(files), contents, None, limit=limit)


def whole(folder, name="b.tar", **options):
    paths = write(folder / name, **options)
    return b"".join(path.read_bytes() for path in paths)


def extract(path, folder):
    bundle = Bundle(path)
    try:
        bundle.extract(folder, lambda _: True)
    finally:
        bundle.close()


def test_a_bundle_is_a_tar(tmp_path):
    """Any tar reads it: same names, same contents, and start.sh runs."""
    data = whole(tmp_path)
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        found = {it.name: tar.extractfile(it).read() for it in tar}
    found.pop("bundle.json")
    assert FILES == found


def test_size_is_known_beforehand(tmp_path):
    """The length follows from the list of contents alone."""
    assert total_bytes(render_manifest(manifest_of()), manifest_of()) == len(whole(tmp_path))


def test_manifest_reads_back():
    """What is written is what is read."""
    assert manifest_of() == parse_manifest(render_manifest(manifest_of()), "x")


@pytest.mark.parametrize(
    "path",
    [
        pytest.param("../x", id="above"),
        pytest.param("/etc/passwd", id="absolute"),
        pytest.param("wheels/../../x", id="above, from inside"),
        pytest.param("wheels/./x", id="not plain"),
        pytest.param("elsewhere/x", id="no room of a bundle"),
        pytest.param("bundle.json", id="the list itself"),
    ],
)
def test_paths_that_lead_elsewhere_are_refused(path):
    """A list of contents names only files in a bundle's rooms."""
    bad = manifest_of({path: b"x"})
    with pytest.raises(BundleError, match="not a bundle's"):
        parse_manifest(render_manifest(bad), "x")


def test_one_path_twice_is_refused():
    """Two files cannot have one place."""
    twice = manifest_of()
    twice = manifest_of(members=(*twice.members, twice.members[0]))
    with pytest.raises(BundleError, match="one path twice"):
        parse_manifest(render_manifest(twice), "x")


@pytest.mark.parametrize("limit", [511, 512, 4096, 10_000_000])
def test_pieces_join_to_the_whole(tmp_path, limit):
    """`cat` of all pieces is the bundle, and no piece is larger than asked for."""
    one = whole(tmp_path / "one", files={"start.sh": b"x" * 300, "pylock.tiny.toml": b"y"})
    paths = write(tmp_path / "cut" / "b.tar", limit=limit, files={"start.sh": b"x" * 300, "pylock.tiny.toml": b"y"})
    sizes = [path.stat().st_size for path in paths]
    assert (one, True) == (b"".join(path.read_bytes() for path in paths), max(sizes) <= limit)


def test_fewer_pieces_leave_no_old_ones(tmp_path):
    """Pieces of an earlier, larger bundle do not stay beside the new ones."""
    write(tmp_path / "b.tar", limit=100_000)
    paths = write(tmp_path / "b.tar", limit=100_000, files={"start.sh": b"x"})
    assert sorted(path.name for path in paths) == sorted(path.name for path in tmp_path.iterdir())


@pytest.mark.parametrize("name", ["b.tar", "b.tar.zst"])
@pytest.mark.parametrize("limit", [None, 70_000])
def test_every_member_is_read_back(tmp_path, name, limit):
    """A bundle gives each file as it was put there, framed or not, in pieces or not."""
    paths = write(tmp_path / name, limit=limit)
    bundle = Bundle(paths[0])
    assert FILES == {path: bundle.read(path) for path in FILES}
    bundle.close()


@pytest.mark.parametrize("name", ["b.tar", "b.tar.zst"])
@pytest.mark.parametrize("limit", [None, 50_000])
def test_written_on_from_any_length(tmp_path, name, limit):
    """Cut at any byte, the unfinished bundle is brought to the same end."""
    wanted = whole(tmp_path / "whole", name)
    for cut in [0, 1, 511, 600, 5000, 131_083, 131_084, 140_000, 200_001, 300_000, len(wanted) - 1]:
        folder = tmp_path / f"{cut}"
        folder.mkdir()
        writer = PieceWriter(folder / name, limit)
        writer.append(wanted[:cut])
        paths = write(folder / name, limit=limit)
        assert (cut, wanted) == (cut, b"".join(path.read_bytes() for path in paths))


@pytest.mark.parametrize("at", [5, 3000, 200_000])
def test_unfinished_bytes_that_are_wrong_are_written_anew(tmp_path, at):
    """A byte that rotted in the unfinished bundle does not stay in it."""
    wanted = whole(tmp_path / "whole")
    broken = bytearray(wanted[:390_000])
    broken[at] ^= 1
    (tmp_path / "b.tar.part").write_bytes(bytes(broken))
    assert wanted == whole(tmp_path)


def test_a_wrong_file_is_named_and_taken_out(tmp_path):
    """A file with another hash than the list's is not kept; what was right before it is."""
    contents = {path: Content(data=content) for path, content in FILES.items()}
    contents["wheels/a-1-py3-none-any.whl"] = Content(data=b"z" * len(FILES["wheels/a-1-py3-none-any.whl"]))
    with pytest.raises(BundleError, match="wheels/a-1-py3-none-any"):
        write(tmp_path / "b.tar", contents=contents)
    there = (tmp_path / "b.tar.part").stat().st_size
    third = list(placed(render_manifest(manifest_of()), manifest_of()))[3]
    assert third.start - len(third.header) == there


@pytest.mark.parametrize("at", [10, 1000, 3500, 250_000])
def test_a_changed_byte_is_refused(tmp_path, at):
    """Any change in header, list or content is seen before the file is used."""
    data = bytearray(whole(tmp_path))
    data[at] ^= 1
    (tmp_path / "b.tar").write_bytes(bytes(data))
    with pytest.raises(BundleError):
        extract(tmp_path / "b.tar", tmp_path / "out")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        pytest.param(lambda data: data[:-1], "not whole", id="cut"),
        pytest.param(lambda data: data + b"x", "not whole", id="longer"),
        pytest.param(lambda data: data[:600], "cut in its list", id="cut in the list"),
        pytest.param(lambda _: b"", "no bundle", id="empty"),
        pytest.param(lambda _: b"PK" * 600, "no bundle", id="a zip"),
        pytest.param(lambda _: frames.MAGIC + b"\x04" * 600, "compressed by another tool", id="zstd of another tool"),
    ],
)
def test_what_is_no_whole_bundle_is_refused(tmp_path, change, said):
    """A damaged or foreign file is refused with what is wrong with it."""
    (tmp_path / "b.tar").write_bytes(change(whole(tmp_path)))
    with pytest.raises(BundleError, match=said):
        Bundle(tmp_path / "b.tar")


def test_a_missing_piece_is_named(tmp_path):
    """Pieces have numbers, so the one that is not there has a name."""
    write(tmp_path / "b.tar", limit=100_000)
    (tmp_path / "b.tar.002").unlink()
    with pytest.raises(BundleError, match=r"b\.tar\.002"):
        find_pieces(tmp_path / "b.tar.001")


@pytest.mark.parametrize("given", ["b.tar.001", "b.tar.003", "b.tar", "."])
def test_pieces_are_found_by_any_name(tmp_path, given):
    """A piece, the name without its number, and the folder all mean the same bundle."""
    paths = write(tmp_path / "b.tar", limit=100_000)
    assert paths == find_pieces(tmp_path / given)


def test_a_folder_with_two_bundles_is_not_guessed(tmp_path):
    """Which one is meant must be said."""
    write(tmp_path / "one.tar")
    write(tmp_path / "two.tar")
    with pytest.raises(BundleError, match="2 bundles"):
        find_pieces(tmp_path)


def test_unfinished_list_is_read(tmp_path):
    """What an interrupted writer left says what it was to become."""
    data = whole(tmp_path / "whole")
    (tmp_path / "b.tar.part").write_bytes(data[:4000])
    assert manifest_of() == unfinished_manifest(tmp_path / "b.tar", None)


def test_unfinished_gives_a_member(tmp_path):
    """A small member that is whole is read from an unfinished bundle; one that is not is None."""
    data = whole(tmp_path / "whole")
    (tmp_path / "b.tar.part").write_bytes(data[:5000])
    there = Unfinished(tmp_path / "b.tar", None)
    last = list(FILES)[2]
    assert (FILES["start.sh"], None) == (there.member(manifest_of(), "start.sh"), there.member(manifest_of(), last))


def test_reading_across_pieces(tmp_path):
    """A read crosses as many pieces as it must."""
    for number, text in enumerate(["abc", "", "de", "f"]):
        (tmp_path / str(number)).write_text(text)
    reader = PieceReader(tuple(tmp_path / str(number) for number in range(4)))
    found = [reader.read_at(at, count) for at, count in [(0, 6), (2, 2), (3, 1), (5, 9), (6, 1)]]
    reader.close()
    assert [b"abcdef", b"cd", b"d", b"f", b""] == found


def test_frames_are_counted():
    """Lengths in frames and back."""
    sizes = [0, 1, frames.CONTENT, frames.CONTENT + 1]
    assert [0, 13, frames.CONTENT + 12, frames.CONTENT + 25] == [frames.framed_bytes(size) for size in sizes]
    assert frames.CONTENT == frames.plain_bytes(frames.framed_bytes(frames.CONTENT + 1))
