"""The only door to HTTP: proxies, certificates, credentials and time limits as uv has them, and parts of files."""

from __future__ import annotations

import io
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote, urlsplit

from verl_env import __version__, uv
from verl_env.errors import ResolveError, VerlEnvError
from verl_env.indexes import masked

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from requests import Response, Session

    from verl_env.indexes import Indexes

DEFAULT_SECONDS = 30.0  # uv's own limit (UV_HTTP_TIMEOUT)
RETRIES = 3
SIMPLE = "application/vnd.pypi.simple.v1+json, text/html;q=0.2"  # PEP 691: JSON before HTML
TAIL = 1 << 16  # a wheel's directory and RECORD are at its end, mostly within this many bytes
BLOCK = 1 << 18
SMALL = 1 << 24  # a server without ranges sends the whole file; above this many bytes it is not worth it
_HINT = "check the network, the proxy (HTTPS_PROXY) and the certificates (SSL_CERT_FILE)"


class FetchError(VerlEnvError):
    """Something that could not be fetched; the message has no credentials."""

    code = "fetch"
    exit_code = ResolveError.exit_code


class NotFoundError(FetchError):
    """The server answers, and does not have it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One answer: `url` is where it was found in the end, without credentials."""

    url: str
    kind: str
    text: str


@dataclass(slots=True, kw_only=True)
class Door:
    """One session. `logins` are (user, password) by host and port, out of URLs that have them."""

    logins: dict[str, tuple[str, str]] = field(default_factory=dict)
    session: Session | None = None

    def page(self, url: str) -> Page:
        """Fetch a page of text; raises NotFoundError, or FetchError with what happened."""
        if url.startswith("file:"):
            path = _local(url)
            path = path / "index.html" if path.is_dir() else path
            if not path.is_file():
                raise NotFoundError(f"no file at `{url}`")
            return Page(url=url, kind="text/html", text=path.read_text(encoding="utf-8"))
        answer = self._ask("GET", url, {"Accept": SIMPLE})
        kind = answer.headers.get("Content-Type", "").split(";")[0].strip()
        return Page(url=_bare(answer.url), kind=kind, text=answer.text)

    def open(self, url: str, size: int) -> io.RawIOBase | io.BufferedReader:
        """Open a file of `size` bytes to read parts of it, without fetching it whole."""
        return _local(url).open("rb") if url.startswith("file:") else RemoteFile(self, url, size)

    def part(self, url: str, start: int, end: int, size: int) -> bytes:
        """Fetch bytes start to end (exclusive) of a file; small ones come whole from servers without ranges."""
        wanted = {"Range": f"bytes={start}-{end - 1}", "Accept-Encoding": "identity"}
        with self._ask("GET", url, wanted, stream=True) as answer:
            if answer.status_code == 206:  # noqa: PLR2004 - Partial Content
                return bytes(answer.content)
            if size > SMALL:
                raise FetchError(f"`{_host(url)}` does not send parts of files, and this one has {size} bytes")
            return bytes(answer.content[start:end])

    def stream(self, url: str, start: int = 0) -> Iterator[bytes]:
        """Yield a file from byte `start` on, in blocks; raises FetchError, also in the middle of it."""
        import requests

        if url.startswith("file:"):
            with _local(url).open("rb") as stream:
                stream.seek(start)
                while block := stream.read(BLOCK):
                    yield block
            return
        wanted = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={start}-"} if start else {})
        with self._ask("GET", url, wanted, stream=True) as answer:
            skip = start if answer.status_code != 206 else 0  # noqa: PLR2004 - Partial Content
            try:
                for block in answer.iter_content(BLOCK):
                    if len(block) > skip:
                        yield block[skip:]
                    skip = max(0, skip - len(block))
            except requests.RequestException as err:
                raise FetchError(f"`{masked(url)}` broke off: {_cause(err)}", hint=_HINT) from None

    def length(self, url: str) -> int | None:
        """Return the size in bytes that a server states for a file, or None; no byte of it is fetched."""
        answer = self._ask("HEAD", url, {"Accept-Encoding": "identity"})
        stated = answer.headers.get("Content-Length", "")
        return int(stated) if stated.isdecimal() else None

    def _ask(self, method: str, url: str, headers: dict[str, str], *, stream: bool = False) -> Response:
        import requests

        if is_offline():
            raise FetchError("UV_OFFLINE is set, so nothing is fetched", hint="unset UV_OFFLINE")
        if self.session is None:
            self.session = _session()
        try:
            answer = self.session.request(
                method,
                url,
                headers=headers,
                auth=self.logins.get(_host(url)),
                timeout=float(os.environ.get("UV_HTTP_TIMEOUT") or DEFAULT_SECONDS),
                verify=_verify(urlsplit(url).hostname or ""),
                stream=stream,
                allow_redirects=True,
            )
        except (requests.RequestException, ValueError) as err:
            raise FetchError(f"`{masked(url)}` cannot be reached: {_cause(err)}", hint=_HINT) from None
        if answer.status_code in (404, 410):
            raise NotFoundError(f"`{masked(url)}` does not exist there ({answer.status_code})")
        if not answer.ok:
            raise FetchError(f"`{masked(url)}`: the server says {answer.status_code} {answer.reason}", hint=_HINT)
        return answer


class RemoteFile(io.RawIOBase):
    """A file on a server, as `zipfile` reads one: the tail is fetched first, other blocks when they are asked for."""

    def __init__(self, door: Door, url: str, size: int) -> None:
        """Fetch nothing yet."""
        super().__init__()
        self._door, self._url, self._size = door, url, size
        self._at = 0
        self._parts: list[tuple[int, bytes]] = []

    def readable(self) -> bool:
        """Say that it can be read."""
        return True

    def seekable(self) -> bool:
        """Say that it has positions."""
        return True

    def tell(self) -> int:
        """Return the position in bytes."""
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move; nothing is fetched."""
        self._at = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence] + offset
        return self._at

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer from what is here, after fetching what is not."""
        view = memoryview(buffer).cast("B")
        end = min(self._at + len(view), self._size)
        if end <= self._at:
            return 0
        data = self._bytes(self._at, end)
        view[: len(data)] = data
        self._at = end
        return len(data)

    def _bytes(self, start: int, end: int) -> bytes:
        """Return bytes from a part that is here, or fetch one: the tail at first, then at least a block."""
        for at, part in self._parts:
            if at <= start and end <= at + len(part):
                return part[start - at : end - at]
        if self._parts:
            first, last = start, min(self._size, max(end, start + BLOCK))
        else:
            first, last = min(start, max(0, self._size - TAIL)), self._size
        part = self._door.part(self._url, first, last, self._size)
        if len(part) != last - first:
            raise FetchError(f"`{_host(self._url)}` sent {len(part)} bytes where {last - first} were asked for")
        self._parts.append((first, part))
        return part[start - first : end - first]


def is_offline() -> bool:
    """Whether the user wants nothing fetched (UV_OFFLINE)."""
    return os.environ.get("UV_OFFLINE", "").lower() in ("1", "true")


def open_door(indexes: Indexes) -> Door:
    """Return a door that knows the credentials of the indexes that are set up."""
    urls = [indexes.default or "", *indexes.extra, *indexes.find_links, *indexes.by_source.values()]
    return Door(logins=_logins(urls))


def content_length(url: str, *, logins: Iterable[str] = ()) -> int | None:
    """Return the size in bytes of a file, as its folder has it or its server states it; None where neither says.

    `logins` are URLs that may hold a user name and password for a server; they are sent to that server only.
    """
    try:
        if url.startswith("file:"):
            return _local(url).stat().st_size
        return Door(logins=_logins([*logins, url])).length(_bare(url))
    except (FetchError, OSError):
        return None


def status_code(url: str, *, bearer: str = "", seconds: float = 5.0) -> int | None:
    """Return what a server answers, asked with a bearer token when there is one; None when it does not answer."""
    import requests

    headers = {"Authorization": f"Bearer {bearer}"} if bearer else {}
    verify = _verify(urlsplit(url).hostname or "")
    try:
        with requests.get(url, headers=headers, timeout=seconds, verify=verify, stream=True) as answer:
            return answer.status_code
    except requests.RequestException:
        return None


def _logins(urls: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Take the user names and passwords out of URLs, by host and port."""
    parts = [urlsplit(url) for url in urls]
    return {_host(it.geturl()): (unquote(it.username), unquote(it.password or "")) for it in parts if it.username}


def _session() -> Session:
    """Return a session that waits and tries again when a server is busy; netrc and proxies are the user's."""
    import requests
    from requests.adapters import HTTPAdapter
    from urllib3.util import Retry

    session = requests.Session()
    session.headers["User-Agent"] = f"verl-env/{__version__}"
    again = Retry(
        total=RETRIES, connect=1, backoff_factor=0.5, status_forcelist=(429, 502, 503, 504), raise_on_status=False
    )
    for scheme in ("https://", "http://"):
        session.mount(scheme, HTTPAdapter(max_retries=again, pool_maxsize=16))
    return session


def _verify(host: str) -> bool | str:
    """Return the certificates to trust: those that the settings name, else the system's, else requests' own."""
    insecure = [urlsplit(f"//{it}").hostname for it in os.environ.get("UV_INSECURE_HOST", "").split()]
    chosen, system = uv.certificates()
    return False if host in insecure else chosen or system or True


def _local(url: str) -> Path:
    return Path(unquote(urlsplit(url).path))


def _host(url: str) -> str:
    """Return host and port, without credentials."""
    return urlsplit(url).netloc.rpartition("@")[2]


def _bare(url: str) -> str:
    """Return a URL without its credentials."""
    return urlsplit(url)._replace(netloc=_host(url)).geturl()


def _cause(err: Exception) -> str:
    """Return the innermost words of an error of requests, which may quote the URL and what is in it."""
    inner = cast(Any, err).args[0] if err.args else err
    reason = getattr(inner, "reason", None) or inner
    return masked(str(reason)).split(": ", 1)[-1]
