"""The world that faults happen in: rows of many small wheels, an index that can misbehave, and verl-env in it."""

from __future__ import annotations

import http.server
import json
import os
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "installer"), str(ROOT / "tests")]

from tiny import Site, Tool, build_wheel, sha256_of  # noqa: E402 - found only now

MODULES = 60  # files of code in each wheel


@dataclass
class Server:
    """An index of a folder of wheels that can be slow, cut off, half, failing, redirecting or lying.

    `break_after` is how many files it serves before `how` sets in: `half` (the connection ends in the middle of a
    file), `storm` (503), `gone` (it stops), `redirect` (to `elsewhere`). `pause` is in seconds a file.
    """

    folder: Path
    how: str = ""
    break_after: int = 0
    pause: float = 0.0
    elsewhere: str = ""
    login: str | None = None
    swapped: dict[str, Path] = field(default_factory=dict)
    served: int = 0
    authorizations: list[tuple[str, str | None]] = field(default_factory=list)
    server: http.server.ThreadingHTTPServer | None = None
    port: int = 0

    @property
    def url(self) -> str:
        """The address of its simple index."""
        return f"http://{f'{self.login}@' if self.login else ''}127.0.0.1:{self.port}/simple/"

    def start(self) -> Server:
        """Listen on a free port, or on the one it had."""
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", self.port), _handler(self))
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def stop(self) -> None:
        """Be gone."""
        server, self.server = self.server, None
        if server:
            server.shutdown()
            server.server_close()

    def page(self, name: str) -> bytes | None:
        """Return the page of a package (PEP 691)."""
        start = name.replace("-", "_") + "-"
        found = sorted(it for it in self.folder.glob("*.whl") if it.name.startswith(start))
        if not found:
            return None
        files = [
            {
                "filename": it.name,
                "url": f"/files/{it.name}",
                "hashes": {"sha256": sha256_of(it)},
                "size": it.stat().st_size,
            }
            for it in found
        ]
        versions = sorted({it.name.split("-")[1] for it in found})
        page = {"meta": {"api-version": "1.1"}, "name": name, "versions": versions, "files": files}
        return json.dumps(page).encode()


def _handler(index: Server) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            index.authorizations.append((self.path, self.headers.get("Authorization")))
            room, _, rest = self.path.lstrip("/").partition("/")
            if room == "simple":
                page = index.page(rest.strip("/"))
                self.answer(200 if page else 404, page or b"", "application/vnd.pypi.simple.v1+json")
            elif room == "files" and (index.folder / rest).is_file():
                _serve(self, index, rest)
            else:
                self.answer(404, b"")

        def answer(self, status, content, kind="application/octet-stream", headers=None, cut=None):
            try:
                self.send_response(status)
                about = {"Content-Type": kind, "Content-Length": str(len(content)), **(headers or {})}
                for name, value in about.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content[:cut])
                if cut is not None:
                    self.wfile.flush()
                    self.close_connection = True
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True

        def log_message(self, *_):
            return

    return Handler


def _serve(handler, index: Server, name: str) -> None:
    """Serve one file, as well as this index does."""
    time.sleep(index.pause)
    index.served += 1
    broken = index.how if index.served > index.break_after else ""
    content = index.swapped.get(name, index.folder / name).read_bytes()
    if broken == "storm":
        handler.answer(503, b"")
    elif broken == "redirect":
        handler.answer(302, b"", headers={"Location": f"{index.elsewhere}files/{name}"})
    elif broken == "half":
        handler.answer(200, content, cut=len(content) // 2)
    elif broken == "gone":
        handler.close_connection = True
        threading.Thread(target=index.stop, daemon=True).start()
    else:
        handler.answer(200, content)


@dataclass
class World:
    """A home with one environment, `old`, in use, and a row `new` that is chosen before it."""

    folder: Path
    tool: Tool
    server: Server
    site: Site
    wheels: list[Path]
    names: dict[str, str] = field(default_factory=dict)

    @property
    def home(self) -> Path:
        """verl-env's own folder."""
        return self.folder / "data"

    @property
    def environments(self) -> Path:
        """The folder of environments."""
        return self.home / "environments"

    @property
    def cache(self) -> Path:
        """Uv's cache."""
        return self.folder / "cache"

    def install(self, row, *words, **more):
        """Install a row."""
        return self.tool("install", "--cpu", "--row", row, *words, **more)

    def path(self, row) -> Path:
        """Return where a row's environment stands."""
        return self.environments / self.names[row]


def make_world(folder: Path, *, wheels: int = 24, modules: int = MODULES) -> World:
    """Build wheels, rows and an index, and install the row `old`."""
    made = folder / "wheels"
    base = [build_wheel(made, "torch", "2.13.0"), build_wheel(made, "verl", "99.0", files=_modules("verl", 3))]
    many = [build_wheel(made, f"many-{at}", "1.0", files=_modules(f"many_{at}", modules)) for at in range(wheels)]
    site = Site(folder=folder / "site")
    site.add_row("old", base, imports=("verl",))
    imports = ("verl", *(f"many_{at}" for at in range(4)))
    site.add_row("new", [*base, *many], imports=imports, set={"verl": "100.0", "torch": "2.13.0"})
    for name in ("home", "work"):
        (folder / name).mkdir()
    server = Server(folder=made).start()
    tool = Tool(home=folder / "home", work=folder / "work", site=site)
    world = World(folder=folder, tool=tool, server=server, site=site, wheels=[*base, *many])
    tool.environ = {
        "VERL_ENV_HOME": str(world.home),
        "UV_CACHE_DIR": str(world.cache),
        "UV_DEFAULT_INDEX": server.url,
        "UV_HTTP_RETRIES": "1",
        "UV_HTTP_TIMEOUT": "10",
    }
    for row in ("old", "new"):
        plan = world.install(row, "--dry-run", "--json")
        world.names[row] = Path(plan.json["data"]["folder"]).name
    done = world.install("old")
    if done.code != 0:
        raise SystemExit(f"the world could not be made:\n{done.err}")
    return world


def _modules(package: str, count: int) -> dict[str, str]:
    """Return the files of a package whose import loads all of its modules."""
    names = [f"part_{at}" for at in range(count)]
    lines = [f"from {package} import {name}" for name in names]
    body = "\n".join(f"def f{at}(x):\n    return x * {at} + len(repr(x))\n" for at in range(40))
    files = {f"{package}/{name}.py": f'"""{name} of {package}."""\n{body}' for name in names}
    return {f"{package}/__init__.py": "\n".join(lines) + '\n__version__ = "1"\n', **files}


def clean_settings() -> None:
    """Drop what this machine's user has set that would change what is measured."""
    for name in tuple(os.environ):
        if name.startswith(("VERL_ENV_", "UV_", "PIP_", "XDG_")):
            del os.environ[name]
