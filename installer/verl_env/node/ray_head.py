"""Where a Ray head would be, and whether it is one that answers; nothing of Ray's is needed for that."""

from __future__ import annotations

import socket
import struct
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping

GCS_PORT = 6379
DEFAULT_ADDRESS = f"127.0.0.1:{GCS_PORT}"
# What a client of HTTP/2 begins with (RFC 9113, 3.4): the preface and empty settings. A gRPC server, as the head is,
# answers with settings of its own at once; a stopped head, or another program, does not.
_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + struct.pack(">IBI", 0x04, 0, 0)
_SETTINGS = 0x04
_HEADER_BYTES = 9


def temp_folder(environ: Mapping[str, str]) -> Path:
    """Return the folder that Ray puts its sessions under, as Ray works it out."""
    return Path(environ.get("RAY_TMPDIR") or environ.get("TMPDIR") or "/tmp")  # noqa: S108 - Ray's own default


def place_of(address: str) -> tuple[str, int] | None:
    """Return host and port of an address; None for `auto` and `local`."""
    if address in ("auto", "local", ""):
        return None
    try:
        parts = urlsplit(address if "://" in address else f"//{address}")
        default = 10001 if parts.scheme == "ray" else GCS_PORT
        return (parts.hostname or "", parts.port or default) if parts.hostname else None
    except ValueError:
        return None


def remembered(environ: Mapping[str, str]) -> tuple[Path, str] | None:
    """Return the file in which Ray keeps the last cluster's address, and the address."""
    path = temp_folder(environ) / "ray" / "ray_current_cluster"
    try:
        return path, path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return None


def fault_of_head(host: str, port: int, environ: Mapping[str, str], *, seconds: float) -> str:
    """Greet who listens there; return why that is no Ray head that answers within `seconds`, or nothing."""
    with_tls = environ.get("RAY_USE_TLS", "0") not in ("", "0")
    try:
        with socket.create_connection((host, port), timeout=seconds) as stream:
            if with_tls:  # only a client with the cluster's certificates is answered
                return ""
            stream.sendall(_HELLO)
            answer = _read(stream, _HEADER_BYTES)
    except TimeoutError:
        return f"no answer within {seconds:g} s"
    except OSError as err:
        return err.strerror or str(err)
    return "" if answer[3:4] == bytes([_SETTINGS]) else "somebody else than a Ray head listens there"


def _read(stream: socket.socket, size: int) -> bytes:
    """Read so many bytes, or fewer where the other side hangs up."""
    read = b""
    while len(read) < size and (more := stream.recv(size - len(read))):
        read += more
    return read
