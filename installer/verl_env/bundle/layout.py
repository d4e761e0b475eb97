"""What is in a bundle and where: a plain tar whose first member lists all others, so every offset is known. Pure.

Wheels are zip files of compressed members: zstd at its default level took 1.5 % off the CPU row. So nothing is
compressed; in exchange a bundle can be written, cut, resumed and read at any offset.
"""

from __future__ import annotations

import json
import posixpath
import tarfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

from verl_env.errors import LockError
from verl_env.records import RecordError, from_plain, to_plain

if TYPE_CHECKING:
    from collections.abc import Iterator

SCHEMA = 1
MANIFEST = "bundle.json"
START = "start.sh"
WHEELS, TOOL, MATRIX, PYTHON, BUILDS = "wheels/", "tool/", "matrix/", "python/", "builds/"
_ROOMS = (WHEELS, TOOL, MATRIX, PYTHON, BUILDS)
_BLOCK = 512  # of a tar
_END = 2 * _BLOCK  # of zeros


class BundleError(LockError):
    """A bundle that is not whole, not ours, or whose files are not what its manifest says."""

    code = "bundle"


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One file: `path` inside the bundle, `size` in bytes, `sha256` in hex."""

    path: str
    size: int
    sha256: str
    executable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The first member, `bundle.json`: what the bundle is for, and every other member in its order.

    `lock` is the path of the lockfile, `digest` its digest; `left_out` names the packages that the target has
    already, as `name version`. `interpreter` is the executable of a carried Python, below the folder of Pythons.
    """

    schema: int
    by: str
    row: str
    title: str
    digest: str
    lock: str
    python: str
    arch: str
    members: tuple[Member, ...]
    left_out: tuple[str, ...] = ()
    interpreter: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A member with its header's bytes and the offset of its content, both in the tar."""

    member: Member
    header: bytes
    start: int

    @property
    def end(self) -> int:
        """The offset after the content and its padding."""
        return self.start + self.member.size + padding(self.member.size)


def render_manifest(manifest: Manifest) -> bytes:
    """Write the manifest, one member a line."""
    plain = to_plain(manifest)
    members = plain.pop("members")
    head = json.dumps(plain, indent=1, ensure_ascii=False, sort_keys=True)
    lines = ",\n".join("  " + json.dumps(it, ensure_ascii=False, sort_keys=True) for it in members)
    return f'{head[:-2]},\n "members": [\n{lines}\n ]\n}}\n'.encode()


def parse_manifest(content: bytes, where: str) -> Manifest:
    """Read and judge a manifest; raises BundleError for what is none, and for paths that lead elsewhere."""
    try:
        manifest = from_plain(Manifest, json.loads(content))
    except (ValueError, RecordError) as err:
        raise BundleError(f"`{where}` has a damaged list of contents", details=(str(err)[:500],), hint=_AGAIN) from err
    if manifest.schema != SCHEMA:
        raise BundleError(
            f"`{where}` has schema {manifest.schema}; this verl-env reads {SCHEMA}", hint="use the verl-env inside it"
        )
    paths = [member.path for member in manifest.members]
    bad = [member.path for member in manifest.members if not _stays(manifest, member)]
    if bad or len(set(paths)) != len(paths):
        raise BundleError(f"`{where}` lists files that are not a bundle's: {', '.join(bad[:3]) or 'one path twice'}")
    return manifest


_AGAIN = "carry it again, or write it again: verl-env bundle"


def _stays(manifest: Manifest, member: Member) -> bool:
    """Whether a member is a plain file in one of a bundle's rooms."""
    path = member.path
    plain = posixpath.normpath(path) == path and not path.startswith(("/", "..")) and "\\" not in path
    known = path in (START, manifest.lock) or path.startswith(_ROOMS)
    return plain and known and member.size >= 0 and len(member.sha256) == 64  # noqa: PLR2004 - hex of sha256


def placed(manifest_bytes: bytes, manifest: Manifest) -> Iterator[Placed]:
    """Yield every member where it lies, the manifest itself first."""
    offset = 0
    for member in (Member(path=MANIFEST, size=len(manifest_bytes), sha256=""), *manifest.members):
        header = header_of(member)
        yield Placed(member=member, header=header, start=offset + len(header))
        offset += len(header) + member.size + padding(member.size)


def total_bytes(manifest_bytes: bytes, manifest: Manifest) -> int:
    """Return the size of the whole tar."""
    return max(it.end for it in placed(manifest_bytes, manifest)) + _END


def header_of(member: Member) -> bytes:
    """Return a member's tar header: no time, no owner, so that the same contents are the same bytes."""
    info = tarfile.TarInfo(member.path)
    info.size = member.size
    info.mode = 0o755 if member.executable else 0o644
    return info.tobuf(tarfile.PAX_FORMAT)


def manifest_size(header: bytes) -> int | None:
    """Read the size of the manifest from the first 512 bytes of a tar; None when that is not its first member."""
    try:
        info = tarfile.TarInfo.frombuf(header[:_BLOCK], "utf-8", "strict")
    except tarfile.HeaderError:
        return None
    return info.size if info.name == MANIFEST and info.isreg() else None


def padding(size: int) -> int:
    """Return how many zeros follow a content of this size."""
    return -size % _BLOCK


HEADER_BYTES = _BLOCK
END_BYTES = _END
