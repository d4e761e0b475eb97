#!/usr/bin/env python3
"""Serve the wheels of a bundle or a folder as a package index (PEP 691), with ETag, ranges and a long max-age.

    python benchmarks/index.py BUNDLE.tar|FOLDER PORT [ADDRESS]

It listens on loopback unless an address is given, and prints its URL; port 0 is any free one. A wheel's metadata can be
had without the wheel (PEP 658). A bundle is an uncompressed tar, so every wheel is served from its place in it. /count
says how often each file was asked for, and how many of its bytes went out:
`{"files": {NAME: {"requests": N, "bytes": N}}}`.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import json
import re
import sys
import tarfile
import threading
import zipfile
from dataclasses import dataclass
from pathlib import Path

FOREVER = "max-age=365000000, immutable, public"


@dataclass(frozen=True)
class Place:
    """Where a wheel's bytes lie; `member` in a bundle."""

    path: Path
    offset: int
    size: int
    member: tarfile.TarInfo | None = None

    @contextlib.contextmanager
    def opened(self):
        """Open it as a file of its own."""
        if self.member is None:
            with self.path.open("rb") as stream:
                yield stream
        else:
            with tarfile.open(self.path) as archive:
                yield archive.extractfile(self.member)


class Wheels:
    """Where each wheel of a bundle or a folder lies, and what its sha256 is."""

    def __init__(self, source: Path) -> None:
        self.places: dict[str, Place] = {}
        self.hashes: dict[str, str] = {}
        if source.is_dir():
            self._take_folder(source)
        else:
            self._take_bundle(source)

    def _take_folder(self, folder: Path) -> None:
        for path in sorted(it for it in folder.iterdir() if it.name.endswith((".whl", ".tar.gz"))):
            self.places[path.name] = Place(path, 0, path.stat().st_size)
            self.hashes[path.name] = sha256_of(path)

    def _take_bundle(self, bundle: Path) -> None:
        with tarfile.open(bundle) as archive:
            for member in archive:
                name = Path(member.name).name
                if member.name == "bundle.json":
                    listed = json.load(archive.extractfile(member))
                    self.hashes = {Path(it["path"]).name: it["sha256"] for it in listed["members"]}
                elif name.endswith((".whl", ".tar.gz")):
                    self.places[name] = Place(bundle, member.offset_data, member.size, member)

    def metadata(self, name: str) -> bytes | None:
        """Return a wheel's METADATA."""
        place = self.places.get(name)
        if place is None or not name.endswith(".whl"):
            return None
        with place.opened() as stream, zipfile.ZipFile(stream) as wheel:
            inside = next(it for it in wheel.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", it))
            return wheel.read(inside)

    def page(self, project: str) -> bytes | None:
        """Return a project's page of PEP 691."""
        found = [it for it in self.places if normalized(it) == project]
        if not found:
            return None
        files = [
            {
                "filename": it,
                "url": f"/files/{it}",
                "hashes": {"sha256": self.hashes[it]} if it in self.hashes else {},
                "size": self.places[it].size,
                "core-metadata": it.endswith(".whl"),
            }
            for it in found
        ]
        return json.dumps({"meta": {"api-version": "1.0"}, "name": project, "files": files}).encode()


def sha256_of(path: Path) -> str:
    """Return a file's sha256 in hex, read piece by piece."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while part := stream.read(1 << 20):
            digest.update(part)
    return digest.hexdigest()


def normalized(file: str) -> str:
    """Return the normalised project name (PEP 503) of a wheel's or an sdist's file name."""
    name = file.split("-", maxsplit=1)[0] if file.endswith(".whl") else file.rpartition("-")[0]
    return re.sub(r"[-_.]+", "-", name).lower()


class Counts:
    """How often each file was asked for, and how many of its bytes went out."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._files: dict[str, dict[str, int]] = {}

    def add(self, name: str, *, requests: int = 0, sent: int = 0) -> None:
        """Count a request or bytes."""
        with self._lock:
            file = self._files.setdefault(name, {"requests": 0, "bytes": 0})
            file["requests"] += requests
            file["bytes"] += sent

    def render(self) -> bytes:
        """Return them as JSON."""
        with self._lock:
            return json.dumps({"files": self._files}, sort_keys=True).encode()


class Handler(http.server.BaseHTTPRequestHandler):
    """Pages under /simple/, files under /files/, what was counted under /count."""

    protocol_version = "HTTP/1.1"
    wheels: Wheels
    counts = Counts()

    def do_GET(self) -> None:
        """Answer with a page, a file or a part of one."""
        kind, _, rest = self.path.strip("/").partition("/")
        if kind == "simple":
            page = self.wheels.page(rest.strip("/"))
            return self._send(404 if page is None else 200, page or b"", "application/vnd.pypi.simple.v1+json")
        if kind == "count":
            return self._send(200, self.counts.render(), "application/json", "no-store")
        if kind == "files" and rest.endswith(".metadata"):
            said = self.wheels.metadata(rest.removesuffix(".metadata"))
            return self._send(404 if said is None else 200, said or b"", "text/plain", FOREVER)
        place = self.wheels.places.get(rest)
        if kind != "files" or place is None:
            return self._send(404, b"", "text/plain")
        return self._send_file(rest, place)

    do_HEAD = do_GET

    def _send(self, status: int, body: bytes, kind: str, cache: str = "max-age=600") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", cache)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def _send_file(self, name: str, place: Place) -> None:
        first, last = 0, place.size - 1
        asked = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        if asked and asked[1]:
            first, last = int(asked[1]), min(int(asked[2] or last), last)
        elif asked:
            first = place.size - int(asked[2])
        self.send_response(206 if asked else 200)
        self.send_header("Content-Length", str(last - first + 1))
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Cache-Control", FOREVER)
        self.send_header("ETag", f'"{place.offset}-{place.size}"')
        if asked:
            self.send_header("Content-Range", f"bytes {first}-{last}/{place.size}")
        self.end_headers()
        if self.command == "GET":
            self.counts.add(name, requests=1)
            self._send_part(name, place, first, last - first + 1)

    def _send_part(self, name: str, place: Place, first: int, count: int) -> None:
        """Send bytes of a file, and count them also when the client goes away before the last."""
        self.wfile.flush()
        with place.path.open("rb") as stream:
            start = place.offset + first
            try:
                self.connection.sendfile(stream, start, count)
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True
            finally:
                # sendfile leaves the file where it stopped.
                self.counts.add(name, sent=stream.tell() - start)

    def log_message(self, *_words: object) -> None:
        """Say nothing: writing a line for each request would be part of what is measured."""


def main() -> None:
    """Serve until killed."""
    source, port, *address = sys.argv[1:]
    Handler.wheels = Wheels(Path(source))
    server = http.server.ThreadingHTTPServer((address[0] if address else "127.0.0.1", int(port)), Handler)
    print(f"http://{server.server_address[0]}:{server.server_address[1]}/simple/", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        server.serve_forever()


if __name__ == "__main__":
    main()
