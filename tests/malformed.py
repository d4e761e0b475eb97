"""Files that are no list of packages and no lockfile: what people hand over by mistake, and what machines cut off."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

SECRET = "hunter2-in-a-url"  # noqa: S105 - no login of anybody's
LOGIN = f"https://me:{SECRET}@index.example"
LOCK_HEAD = 'lock-version = "1.0"\ncreated-by = "verl-env"\n'


@dataclass(frozen=True)
class Malformed:
    """`content` is written to `name`; `fine_for` are readers to whom it is nothing wrong."""

    id: str
    content: bytes
    name: str = "list.txt"
    fine_for: tuple[str, ...] = ()


def _many(*, depth: int) -> bytes:
    return b"a = " + b"[" * depth


FILES = (
    Malformed("empty", b"", fine_for=("-r",)),
    Malformed("only-comments", b"# a comment\n\n", fine_for=("-r",)),
    Malformed("nul-bytes", b"\x00\x01\x02torch==2.6.0\n"),
    Malformed("latin-1", "torch==2.6.0 é\n".encode("latin-1")),
    Malformed("utf-16-cut-off", b"\xff\xfet\x00o\x00r"),
    Malformed("a-program", b"\x7fELF" + bytes(range(256))),
    Malformed("an-archive", b"PK\x03\x04" + b"\xfe" * 40),
    Malformed("a-web-page", b"<html><body>404</body></html>\n"),
    Malformed("prose", b"it does not work, please help\n"),
    Malformed("includes-itself", b"-r list.txt\n"),
    Malformed("includes-in-a-circle", b"-r other.txt\n"),
    Malformed("includes-what-is-gone", b"-r gone.txt\n"),
    Malformed("includes-a-folder", b"-r .\n"),
    Malformed("only-an-index", f"--index-url {LOGIN}/simple\n".encode()),
    Malformed("only-a-url", f"{LOGIN}/\n".encode()),
    Malformed("a-url-that-is-none", f"https://[{SECRET}/x.whl\n".encode()),
    Malformed("json-cut-off", b'[{"name": "torch"', name="list.json"),
    Malformed("json-without-names", b'[{"name": 3}]', name="list.json"),
    Malformed("uv-lock-cut-off", b'version = 1\n[[package]]\nname = "tor', name="uv.lock"),
    Malformed("uv-lock-without-names", b"version = 1\n[[package]]\nversion = 1\n", name="uv.lock"),
    Malformed("uv-lock-of-other-types", b'version = 1\npackage = "torch"\n', name="uv.lock"),
    Malformed("lock-cut-off", LOCK_HEAD.encode() + b'[[packages]]\nname = "tor', name="pylock.toml"),
    Malformed("lock-without-names", LOCK_HEAD.encode() + b"[[packages]]\n", name="pylock.toml"),
    Malformed("lock-of-the-future", b'lock-version = "9.0"\ncreated-by = "x"\npackages = []\n', name="pylock.toml"),
    Malformed("lock-of-nothing", LOCK_HEAD.encode() + b"packages = []\n", name="pylock.toml"),
    Malformed("lock-of-other-types", LOCK_HEAD.encode() + b'packages = "torch"\n', name="pylock.toml"),
    Malformed("nested-too-deeply", _many(depth=100_000), name="pylock.toml"),
    Malformed("conda-empty", b"name: x\ndependencies: []\n", name="environment.yml"),
    Malformed("report-of-nothing", b"PyTorch version: N/A\n[conda] Could not collect\n", name="report.txt"),
)
OTHERS = ("a-folder", "not-there", "huge", "without-end", "a-link-to-itself")


def lay(folder: Path, case: Malformed | str) -> Path:
    """Put a case into a folder, and return its path."""
    folder.mkdir(exist_ok=True)
    (folder / "other.txt").write_text("-r list.txt\n")
    path = folder / (case.name if isinstance(case, Malformed) else case)
    if isinstance(case, Malformed):
        path.write_bytes(case.content)
    elif case == "a-folder":
        path.mkdir()
    elif case == "huge":
        with path.open("wb") as stream:
            stream.truncate(40_000_000)
    elif case == "without-end":
        return Path("/dev/zero")
    elif case == "a-link-to-itself":
        os.symlink(path, path)
    return path
