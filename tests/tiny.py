"""A small world in place of the real one: tiny wheels, an index on loopback, a site matrix, and verl-env in it."""

from __future__ import annotations

import base64
import hashlib
import http.server
import json
import os
import re
import signal
import subprocess
import sys
import threading
import zipfile
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

from verl_env.matrix.evidence import with_evidence
from verl_env.matrix.pins import Pin, make_pins, render_pins
from verl_env.matrix.rows import Evidence

ROOT = Path(__file__).resolve().parents[1]
MINOR = f"{sys.version_info[0]}.{sys.version_info[1]}"
MACHINE = os.uname().machine
DAY = date(2026, 11, 30)


def _record_line(name: str, content: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(content)}\n"


def build_wheel(folder, name, version, *, files=None, requires=(), tag="py3-none-any", programs=()) -> Path:
    """Write a small but whole wheel and return its path; its one module is the package's name by default.

    `programs` are those of its files that can be run.
    """
    module = name.replace("-", "_")
    contents = {f"{module}/__init__.py": f'__version__ = "{version}"\n'} if files is None else dict(files)
    info = f"{module}-{version}.dist-info"
    metadata = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    metadata += [f"Requires-Dist: {it}" for it in requires]
    contents[f"{info}/METADATA"] = "\n".join(metadata) + "\n"
    contents[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: {tag}\n"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{module}-{version}-{tag}.whl"
    record = "".join(_record_line(file, text.encode()) for file, text in contents.items())
    with zipfile.ZipFile(path, "w") as wheel:
        for file, text in {**contents, f"{info}/RECORD": f"{record}{info}/RECORD,,\n"}.items():
            entry = zipfile.ZipInfo(file, date_time=(2026, 11, 30, 0, 0, 0))
            entry.external_attr = (0o100755 if file in programs else 0o100644) << 16
            wheel.writestr(entry, text)
    return path


def sha256_of(path) -> str:
    """Return a file's sha256 in hex."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def pin_of(path, *, source="default") -> Pin:
    """Return the pin of a wheel on disk."""
    name, version = path.name.split("-")[:2]
    return Pin(
        name=name.replace("_", "-").lower(),
        version=version,
        file=path.name,
        size=path.stat().st_size,
        sha256=sha256_of(path),
        source=source,
    )


def snapshot(folder) -> dict:
    """Return each path below a folder with its kind and time of change, and its content or target."""
    found = {}
    for path in sorted(folder.rglob("*")):
        about = path.lstat()
        content = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
        found[str(path.relative_to(folder))] = (about.st_mode, about.st_mtime_ns, content)
    return found


@dataclass
class Index:
    """A simple index (PEP 503; PEP 691 with PEP 700's sizes unless `html`) of a folder of wheels.

    `hashes` overrides what is said of a file. `gate` holds back files whose name starts with `gated`. With
    `login`, every request must carry it. With `ranges`, parts of files can be asked for, and only parts are sent.
    """

    folder: Path
    html: bool = False
    ranges: bool = False
    login: str | None = None
    gated: str | None = None
    gate: threading.Event = field(default_factory=threading.Event)
    waiting: threading.Event = field(default_factory=threading.Event)
    hashes: dict[str, str] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    server: http.server.ThreadingHTTPServer | None = None
    host: str = ""

    @property
    def url(self) -> str:
        """Its address, with the login when it needs one."""
        return f"http://{f'{self.login}@' if self.login else ''}{self.host}/simple/"

    def files_of(self, name: str) -> list[Path]:
        """Return the files of a package."""
        start = name.replace("-", "_") + "-"
        return sorted(it for it in self.folder.iterdir() if it.name.lower().startswith(start))

    def hash_of(self, path: Path) -> str:
        """Return what this index says a file's sha256 is."""
        return self.hashes.get(path.name) or sha256_of(path)

    def page(self, name: str, accept: str) -> tuple[str, bytes] | None:
        """Return the kind and content of a package's page, or None when it is not known."""
        files = self.files_of(name)
        if not files:
            return None
        if self.html or "v1+json" not in accept:
            links = "".join(f'<a href="/files/{it.name}#sha256={self.hash_of(it)}">{it.name}</a>\n' for it in files)
            return "text/html", f"<!DOCTYPE html><html><body>\n{links}</body></html>".encode()
        listed = [
            {
                "filename": it.name,
                "url": f"/files/{it.name}",
                "hashes": {"sha256": self.hash_of(it)},
                "size": it.stat().st_size,
            }
            for it in files
        ]
        versions = sorted({it.name.split("-")[1] for it in files})
        page = {"meta": {"api-version": "1.1"}, "name": name, "versions": versions, "files": listed}
        return "application/vnd.pypi.simple.v1+json", json.dumps(page).encode()

    def lets_in(self, authorization: str | None) -> bool:
        """Whether a request with this header is answered."""
        return self.login is None or authorization == "Basic " + base64.b64encode(self.login.encode()).decode()

    def wait_at_gate(self, file: str) -> None:
        """Hold back a gated file until the gate opens."""
        if self.gated and file.startswith(self.gated):
            self.waiting.set()
            self.gate.wait()

    def stop(self) -> None:
        """Be out of reach from now on."""
        if self.server:
            self.gate.set()
            self.server.shutdown()
            self.server.server_close()
            self.server = None


def serve_index(index: Index) -> Index:
    """Start to serve it on a free port of loopback."""
    index.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(index))
    index.server.daemon_threads = True
    index.host = f"127.0.0.1:{index.server.server_address[1]}"
    threading.Thread(target=index.server.serve_forever, args=(0.05,), daemon=True).start()
    return index


def _part_of(content: bytes, wanted: str) -> tuple[int, bytes, dict[str, str]]:
    """Return status, bytes and headers for a Range header (RFC 9110, one range of bytes)."""
    part = re.fullmatch(r"bytes=(\d*)-(\d*)", wanted)
    if part is None:
        return 200, content, {}
    first = int(part[1]) if part[1] else max(0, len(content) - int(part[2]))
    last = min(int(part[2]), len(content) - 1) if part[1] and part[2] else len(content) - 1
    return 206, content[first : last + 1], {"Content-Range": f"bytes {first}-{last}/{len(content)}"}


class _Handler(http.server.BaseHTTPRequestHandler):
    """Answers for the index that a subclass names."""

    index: Index

    def do_GET(self):
        if self.command == "GET":
            self.index.asked.append(self.path)
        if not self.index.lets_in(self.headers.get("Authorization")):
            self.answer(401, "text/plain", b"", {"WWW-Authenticate": "Basic"})
            return
        room, _, rest = self.path.lstrip("/").partition("/")
        if room == "simple" and (page := self.index.page(rest.strip("/"), self.headers.get("Accept", ""))):
            self.answer(200, *page)
        elif room == "files" and (self.index.folder / rest).is_file():
            if self.command == "GET":
                self.index.wait_at_gate(rest)
            self.send_file((self.index.folder / rest).read_bytes())
        else:
            self.answer(404, "text/plain", b"")

    do_HEAD = do_GET  # noqa: N815 - http.server finds it by this name

    def send_file(self, content):
        status, part, said = _part_of(content, self.headers.get("Range", "") if self.index.ranges else "")
        self.answer(status, "application/octet-stream", part, said)

    def answer(self, status, kind, content, headers=None):
        try:
            self.send_response(status)
            for name, value in {"Content-Type": kind, "Content-Length": len(content), **(headers or {})}.items():
                self.send_header(name, str(value))
            self.end_headers()
            self.wfile.write(content if self.command == "GET" else b"")
        except (BrokenPipeError, ConnectionResetError):
            return  # the client was killed, which is what some tests are about

    def log_message(self, *_):
        return


def _handler(index: Index) -> type[_Handler]:
    return type("Handler", (_Handler,), {"index": index})


@dataclass
class Site:
    """A site's matrix folder, laid over the shipped one."""

    folder: Path

    def add_row(self, row, wheels, *, sources=None, proved=True, arch=(MACHINE,), python=(MINOR,), **rest):
        """Write a row of these wheels, its pins and (when proved) its evidence; return its pins.

        `rest`: cuda, imports, exports, settings, verl (the version that ranks it), build.
        """
        pins = tuple(pin_of(it, source=(sources or {}).get(it.name.split("-")[0], "default")) for it in wheels)
        versions = {pin.name: pin.version for pin in pins} | rest.get("set", {})
        text = self.render(versions, arch=arch, python=python, **rest)
        made = [make_pins(row, minor, machine, pins=pins, build=(), made=DAY) for minor in python for machine in arch]
        for one in made:
            self.write(f"pins/{one.header.file_name}", render_pins(one))
            if proved:
                text = with_evidence(text, evidence_for(one.header))
        self.write(f"rows/{row}.toml", text)
        return made[0]

    @staticmethod
    def render(versions, *, arch, python, cuda=None, imports=("torch", "verl"), exports=None, settings=(), **_):
        """Write a row's TOML."""
        lines = ['title = "a tiny set"', f"python = {json.dumps(python)}", f"arch = {json.dumps(arch)}"]
        lines += [f'cuda = "{cuda}"'] if cuda else []
        lines += ["[set]", *(f'{name} = "{version}"' for name, version in versions.items())]
        lines += ["[smoke]", f"imports = {json.dumps(imports)}"]
        lines += ["[exports]", *(f"{name} = {json.dumps(value)}" for name, value in (exports or {}).items())]
        lines += ["[attention]", 'path = "sdpa"', f"settings = {json.dumps(settings)}"]
        return "\n".join(lines) + "\n"

    def write(self, name, text):
        """Write one file of the folder."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path


def evidence_for(header, level="exercised") -> Evidence:
    """Return evidence of these very pins."""
    return Evidence(
        level=level,
        date=DAY,
        python=f"{header.python}.0",
        arch=header.arch,
        pins=header.digest,
        device="none",
        glibc="2.35",
        by="tests",
    )


@dataclass
class Done:
    """One finished call of verl-env."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict:
        """The one object on stdout."""
        return json.loads(self.out)


@dataclass
class Tool:
    """`verl-env` as a user runs it, with a home and a matrix of its own."""

    home: Path
    work: Path
    site: Site | None = None
    index: Index | None = None
    environ: dict[str, str] = field(default_factory=dict)

    def variables(self, **more) -> dict[str, str]:
        """Return the variables that it runs with: a bare shell's, and what the tests lay out."""
        search = os.pathsep.join(filter(None, (str(ROOT / "installer"), os.environ.get("PYTHONPATH"))))
        laid = {
            "HOME": str(self.home),
            "PATH": os.pathsep.join([os.path.dirname(sys.executable), "/usr/bin", "/bin"]),
            "PYTHONPATH": search,
            "PIP_CONFIG_FILE": os.devnull,
            "XDG_CONFIG_DIRS": str(self.home / "etc-xdg"),
            "UV_PYTHON_DOWNLOADS": "never",
            "NO_PROXY": "127.0.0.1",
        }
        laid |= {"VERL_ENV_MATRIX": str(self.site.folder)} if self.site else {}
        laid |= {"UV_DEFAULT_INDEX": self.index.url} if self.index else {}
        return laid | self.environ | more

    def start(self, *words, options=(), cwd=None, **more) -> subprocess.Popen:
        """Start it, in a process group of its own."""
        return self.start_python(*options, "-m", "verl_env", *words, cwd=cwd, **more)

    def start_python(self, *words, cwd=None, **more) -> subprocess.Popen:
        """Start this Python with the same variables."""
        return subprocess.Popen(
            [sys.executable, *map(str, words)],
            env=self.variables(**more),
            cwd=cwd or self.work,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def finish(self, child) -> Done:
        """Wait for it; what is left of it when the test is interrupted goes with it."""
        try:
            out, err = child.communicate()
        except BaseException:
            os.killpg(child.pid, signal.SIGKILL)
            raise
        return Done(child.returncode, out, err)

    def __call__(self, *words, **options) -> Done:
        """Run it to its end."""
        return self.finish(self.start(*words, **options))

    @property
    def data(self) -> Path:
        """Where environments, logs and links live."""
        return self.home / ".local/share/verl-env"

    @property
    def current(self) -> Path:
        """The link to the environment in use."""
        return self.data / "current"
