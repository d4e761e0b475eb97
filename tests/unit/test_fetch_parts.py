"""Parts of files: `zipfile` reads a wheel through them, and little of it is asked for."""

from __future__ import annotations

import io
import zipfile

import pytest

from verl_env.fetch import BLOCK, TAIL, FetchError, RemoteFile, open_door
from verl_env.indexes import Indexes
from verl_env.matrix.wheel_records import read_member


class Shelf:
    """A door that has one file, and remembers what was asked of it."""

    def __init__(self, content: bytes, *, short: int = 0) -> None:
        """Keep the file; `short` bytes are left out of each answer."""
        self.content, self.short = content, short
        self.asked: list[tuple[int, int]] = []

    def open(self, url: str, size: int) -> RemoteFile:
        """Open it as a door does."""
        return RemoteFile(self, url, size)

    def part(self, _url: str, start: int, end: int, _size: int) -> bytes:
        """Return a part."""
        self.asked.append((start, end))
        return self.content[start : end - self.short]


def wheel(files: int, size: int) -> bytes:
    """Return a wheel of so many files of so many bytes, its .dist-info first as no tool should write it."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("a-1.dist-info/RECORD", "a/b.py,sha256=x,1\n")
        for number in range(files):
            archive.writestr(f"a/{number:06}.bin", bytes([number % 251]) * size)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("files", "size", "requests"),
    [
        pytest.param(1, 10, 1, id="smaller than the tail: one request"),
        pytest.param(4, 1_000_000, 2, id="large: the tail, and a block at the RECORD"),
        pytest.param(3000, 700, 3, id="a directory longer than the tail"),
    ],
)
def test_record_is_read_from_parts(files, size, requests):
    """The text is right, and only parts were asked for."""
    shelf = Shelf(wheel(files, size))

    text = read_member(shelf, "https://index.example/a.whl", len(shelf.content), "RECORD")

    assert "a/b.py,sha256=x,1\n" == text
    assert requests == len(shelf.asked)
    assert sum(end - start for start, end in shelf.asked) <= TAIL + BLOCK * requests


def test_every_byte_is_the_files_own():
    """Reads at any place give what a file on disk gives."""
    content = bytes(range(256)) * 4000
    remote = RemoteFile(Shelf(content), "https://index.example/f", len(content))

    for start, count in ((0, 10), (999_999, 50), (len(content) - 5, 50), (300_000, BLOCK + 7), (len(content), 1)):
        remote.seek(start)
        assert content[start : start + count] == remote.read(count)


def test_a_short_answer_is_an_error():
    """Fewer bytes than were asked for are not taken for the file's end."""
    shelf = Shelf(wheel(1, 10), short=1)

    with pytest.raises(FetchError, match="bytes where"):
        read_member(shelf, "https://index.example/a.whl", len(shelf.content), "RECORD")


def test_a_wheel_without_the_member():
    """A missing file of .dist-info is a bad wheel."""
    shelf = Shelf(wheel(1, 10))

    with pytest.raises(zipfile.BadZipFile, match="has no METADATA"):
        read_member(shelf, "https://index.example/a.whl", len(shelf.content), "METADATA")


def test_logins_are_for_their_own_server():
    """Each index's user and password are kept by host and port, unquoted."""
    door = open_door(
        Indexes(
            default="https://me:p%40ss@index.example/simple",
            extra=("https://other.example:8443/simple",),
            by_source={"pytorch-cpu": "https://it@other.example/simple"},
        )
    )

    assert {"index.example": ("me", "p@ss"), "other.example": ("it", "")} == door.logins
