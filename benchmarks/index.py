#!/usr/bin/env python3
"""Serve the wheels of a bundle as a package index on loopback (PEP 691), with ETag, ranges and a long max-age.

    python benchmarks/index.py BUNDLE.tar PORT

A bundle is an uncompressed tar, so every wheel is served from its place in it.
"""

from __future__ import annotations

import http.server
import json
import re
import sys
import tarfile
from pathlib import Path

FOREVER = "max-age=365000000, immutable, public"


class Wheels:
    """Where each wheel of a bundle lies, and what the lock says of it."""

    def __init__(self, bundle: Path) -> None:
        self.path = bundle
        self.places: dict[str, tuple[int, int]] = {}
        self.hashes: dict[str, str] = {}
        with tarfile.open(bundle) as archive:
            for member in archive:
                name = Path(member.name).name
                if member.name == "bundle.json":
                    listed = json.load(archive.extractfile(member))
                    self.hashes = {Path(it["path"]).name: it["sha256"] for it in listed["members"]}
                elif name.endswith((".whl", ".tar.gz")):
                    self.places[name] = (member.offset_data, member.size)

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
                "size": self.places[it][1],
            }
            for it in found
        ]
        return json.dumps({"meta": {"api-version": "1.0"}, "name": project, "files": files}).encode()


def normalized(file: str) -> str:
    """Return the normalised project name (PEP 503) of a wheel's or an sdist's file name."""
    name = file.split("-", maxsplit=1)[0] if file.endswith(".whl") else file.rpartition("-")[0]
    return re.sub(r"[-_.]+", "-", name).lower()


class Handler(http.server.BaseHTTPRequestHandler):
    """Pages under /simple/, files under /files/."""

    protocol_version = "HTTP/1.1"
    wheels: Wheels

    def do_GET(self) -> None:
        """Answer with a page, a file or a part of one."""
        kind, _, rest = self.path.strip("/").partition("/")
        if kind == "simple":
            page = self.wheels.page(rest.strip("/"))
            return self._send(404 if page is None else 200, page or b"", "application/vnd.pypi.simple.v1+json")
        place = self.wheels.places.get(rest)
        if kind != "files" or place is None:
            return self._send(404, b"", "text/plain")
        return self._send_file(*place)

    do_HEAD = do_GET

    def _send(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "max-age=600")
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def _send_file(self, offset: int, size: int) -> None:
        first, last = 0, size - 1
        asked = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        if asked and asked[1]:
            first, last = int(asked[1]), min(int(asked[2] or size - 1), size - 1)
        elif asked:
            first = size - int(asked[2])
        self.send_response(206 if asked else 200)
        self.send_header("Content-Length", str(last - first + 1))
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Cache-Control", FOREVER)
        self.send_header("ETag", f'"{offset}-{size}"')
        if asked:
            self.send_header("Content-Range", f"bytes {first}-{last}/{size}")
        self.end_headers()
        if self.command == "GET":
            self.wfile.flush()
            with self.wheels.path.open("rb") as stream:
                self.connection.sendfile(stream, offset + first, last - first + 1)

    def log_message(self, *_words: object) -> None:
        """Say nothing: writing a line for each request would be part of what is measured."""


def main() -> None:
    """Serve until killed."""
    Handler.wheels = Wheels(Path(sys.argv[1]))
    http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Handler).serve_forever()


if __name__ == "__main__":
    main()
