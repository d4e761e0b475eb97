"""What the tests of install.sh share: shells, a described machine, a release served on loopback, one call of the script."""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import threading
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SHELLS = {"dash": ["dash"], "bash": ["bash"], "busybox": ["busybox", "sh"], "zsh": ["zsh"]}
# What a bare node has, besides Python; a test takes some away.
COMMANDS = (
    "awk", "basename", "cat", "chmod", "cp", "curl", "cut", "date", "df", "dirname", "env", "find",
    "grep", "gzip", "head", "ln", "ls", "mkdir", "mv", "openssl", "printf", "pwd", "readlink", "rm", "rmdir",
    "sed", "sh", "sha256sum", "sleep", "sort", "tail", "tar", "tr", "uname", "wc", "wget", "xargs",
)  # fmt: skip
VERSION = "1.2.3"
WHEEL = f"verl_env-{VERSION}-py3-none-any.whl"
CLI = """import os, sys
def main():
    if sys.argv[1:] == ["--version"]:
        print("verl-env {version}")
        return 0
    print("{word}", *sys.argv[1:])
    return int(os.environ.get("STUB_EXIT", "0"))
"""


def sha256(path):
    """Return a file's sha256 in hex."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def snapshot(folder):
    """Return each path below a folder with its kind, content or target, and time of change."""
    found = {}
    for path in sorted(folder.rglob("*")):
        about = path.lstat()
        content = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
        found[str(path.relative_to(folder))] = (about.st_mode, about.st_mtime_ns, content)
    return found


def wheel_of(folder, name, version, files, *, entry="", requires=()):
    """Write a small but real wheel and return its path."""
    info = f"{name}-{version}.dist-info"
    metadata = [f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {version}"]
    metadata += [f"Requires-Dist: {it}" for it in requires]
    files = {
        **files,
        f"{info}/METADATA": "\n".join(metadata) + "\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        **({f"{info}/entry_points.txt": f"[console_scripts]\n{entry}\n"} if entry else {}),
    }
    record = "".join(f"{it},,\n" for it in [*files, f"{info}/RECORD"])
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for file, content in {**files, f"{info}/RECORD": record}.items():
            wheel.writestr(file, content)
    return path


def tool_wheel(folder, *, word="release", requires=()):
    """Write a wheel with verl-env's name and console script, whose command prints what it was given."""
    cli = CLI.format(version=VERSION, word=word)
    files = {"verl_env/__init__.py": "", "verl_env/cli.py": cli}
    return wheel_of(folder, "verl_env", VERSION, files, entry="verl-env = verl_env.cli:main", requires=requires)


def pins(script):
    """Return the NAME="value" lines at the top of install.sh."""
    return dict(re.findall(r'^([A-Z0-9_]+)="([^"]*)"$', script, flags=re.MULTILINE))


def repin(script, **values):
    """Return install.sh with other values in such lines."""
    for name, value in values.items():
        script, count = re.subn(rf'^{name}="[^"]*"$', f'{name}="{value}"', script, flags=re.MULTILINE)
        assert count == 1, name
    return script


def stamper():
    """Return scripts/stamp_release.py as a module."""
    spec = importlib.util.spec_from_file_location("stamp_release", ROOT / "scripts" / "stamp_release.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def make_tool_wheel():
    """Return the function that writes a wheel with verl-env's name."""
    return tool_wheel


@pytest.fixture
def make_wheel():
    """Return the function that writes a wheel."""
    return wheel_of


@pytest.fixture
def stamp():
    """Return scripts/stamp_release.py as a module."""
    return stamper()


@dataclass
class Served:
    """A folder behind http://127.0.0.1, and what was asked of it."""

    folder: Path
    url: str
    asked: list = field(default_factory=list)
    credentials: list = field(default_factory=list)
    stall: threading.Event = field(default_factory=threading.Event)
    stalled: threading.Event = field(default_factory=threading.Event)
    stall_on: str = "nothing"


@pytest.fixture
def served(tmp_path):
    """Serve a folder on loopback; requests of paths that hold `stall_on` wait until `stall` is set."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def do_GET(self):
            site.asked.append(self.path)
            site.credentials.append(self.headers.get("Authorization"))
            if site.stall_on in self.path:
                site.stalled.set()
                site.stall.wait(30)
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                super().do_GET()

        def log_message(self, *_):
            pass

    folder = tmp_path / "served"
    folder.mkdir()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), lambda *args: Handler(*args, directory=str(folder)))
    server.daemon_threads = True
    site = Served(folder=folder, url=f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield site
    site.stall.set()
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(scope="session")
def uv_binary():
    """Return the uv of this Python's own `uv` package, or the one on PATH."""
    with contextlib.suppress(ImportError, FileNotFoundError):
        from uv import find_uv_bin

        return Path(find_uv_bin())
    found = shutil.which("uv")
    if not found:
        pytest.skip("no uv here")
    return Path(found)


@dataclass(frozen=True)
class UvFiles:
    """A wheel and a release archive of uv under the names that install.sh knows, and their hashes as its pins."""

    wheel: Path
    archive: Path
    pins: dict


@pytest.fixture(scope="session")
def uv_files(uv_binary, tmp_path_factory):
    """Return files that hold the real uv, so that everything but the published hash is as it would be."""
    folder = tmp_path_factory.mktemp("uv")
    known = pins((ROOT / "install.sh").read_text())
    machine = os.uname().machine
    version = known["UV_VERSION"]
    wheel = folder / known[f"UV_WHEEL_{machine.upper()}"]
    info = f"uv-{version}.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(uv_binary, f"uv-{version}.data/scripts/uv")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: uv\nVersion: {version}\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: false\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    release = folder / f"uv-{machine}-unknown-linux-gnu.tar.gz"
    with tarfile.open(release, "w:gz", compresslevel=1) as archive:
        archive.add(uv_binary, f"uv-{machine}-unknown-linux-gnu/uv")
    hashes = {
        f"UV_WHEEL_SHA256_{machine.upper()}": sha256(wheel),
        f"UV_ARCHIVE_SHA256_{machine.upper()}": sha256(release),
    }
    return UvFiles(wheel=wheel, archive=release, pins=hashes)


class Node:
    """A node as the script sees it: a home, commands on PATH, devices; and what it says when it runs there."""

    def __init__(self, folder, uv_binary):
        """Make an empty home, a described machine with no devices, and a PATH with what a bare node has."""
        self.uv_binary = uv_binary
        self.home, self.root, self.bin, self.tmp = (folder / it for it in ("home", "root", "bin", "tmp"))
        for made in (self.home, self.root, self.bin, self.tmp):
            made.mkdir()
        for command in COMMANDS:
            found = shutil.which(command)
            if found:
                (self.bin / command).symlink_to(found)
        self.command("python3", f'exec {shlex.quote(sys.executable)} "$@"')
        self.env = {"PATH": str(self.bin), "HOME": str(self.home), "TMPDIR": str(self.tmp), "LC_ALL": "C",
                    "VERL_ENV_TEST_ROOT": str(self.root), "UV_CACHE_DIR": str(folder / "uv-cache"),
                    "PIP_CONFIG_FILE": os.devnull, "UV_NO_CONFIG": "1", "UV_PYTHON_DOWNLOADS": "never"}  # fmt: skip
        self.script = folder / "install.sh"
        self.data = self.home / ".local/share/verl-env"
        self.self = self.data / "self"
        self.launcher = self.home / ".local/bin/verl-env"

    def command(self, name, body):
        """Put a command of ours on the node's PATH."""
        path = self.bin / name
        path.unlink(missing_ok=True)
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)

    def without(self, *names):
        """Take commands away."""
        for name in names:
            (self.bin / name).unlink()

    def without_pip(self):
        """Let Python be one that has no pip and no ensurepip, as Debian's is."""
        self.command(
            "python3",
            f'case "$*" in *"-m pip"*|*/pip\\ *) exit 1 ;; *ensurepip*) exit 0 ;; esac\n'
            f'exec {shlex.quote(sys.executable)} "$@"',
        )

    def device(self, *names):
        """Put device files (and whatever lies under such a root) on the described machine."""
        for name in names:
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()

    def give_uv(self):
        """Put a uv in install.sh's own folder, as an earlier run would have; it keeps a record of its calls."""
        version = pins((ROOT / "install.sh").read_text())["UV_VERSION"]
        folder = self.self / "uv" / version
        folder.mkdir(parents=True)
        self.calls = self.home.parent / "uv-calls"
        (folder / "uv").write_text(
            "#!/bin/sh\n"
            f'{{ printf "%s\\n" "$*"; env | grep "^UV_" | grep -v "^UV_CALL"; }} >>{shlex.quote(str(self.calls))}\n'
            f'exec {shlex.quote(str(self.uv_binary))} "$@"\n'
        )
        (folder / "uv").chmod(0o755)
        (folder / "sha256").write_text(sha256(folder / "uv") + "\n")

    def repin(self, **values):
        """Give the node's install.sh other values of its pins."""
        self.script.write_text(repin(self.script.read_text(), **values))

    def pin(self, name):
        """Return a pin of the node's install.sh, for this machine's architecture if it has one for each."""
        known = pins(self.script.read_text())
        return known.get(name) or known[f"{name}_{os.uname().machine.upper()}"]

    def snapshot(self):
        """Return everything in the home folder, and in the one for temporary files."""
        return snapshot(self.home), snapshot(self.tmp)

    def started(self):
        """Return the folder of the tool that the launcher starts."""
        return Path(re.search(r"^exec '(.*)/verl-env/bin/python' -I ", self.launcher.read_text(), re.MULTILINE)[1])

    def call(self, *args, **env):
        """Start verl-env by its launcher, as a user does; return what it printed."""
        env = {**self.env, **env}
        return subprocess.run([self.launcher, *args], env=env, capture_output=True, text=True, check=True).stdout

    def uv_calls(self):
        """Return what that uv was called with, and its settings."""
        return self.calls.read_text().splitlines() if self.calls.exists() else []

    def start(self, *args, **env):
        """Start the script as a file, in a session of its own, and do not wait for it."""
        return subprocess.Popen(
            ["sh", self.script, *args], env={**self.env, **env}, cwd=self.tmp, text=True, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def run(self, *args, shell="dash", piped=True, **env):
        """Run the script to its end."""
        found = shutil.which(SHELLS[shell][0])
        if not found:
            pytest.skip(f"no {shell} here")
        text = self.script.read_text() if piped else None
        words = [found, *SHELLS[shell][1:], *(["-s", "--"] if piped else [str(self.script)]), *args]
        return subprocess.run(
            words,
            input=text,
            env={**self.env, **env},
            cwd=self.tmp,
            text=True,
            capture_output=True,
            timeout=120,
            check=False,
        )


@pytest.fixture
def node(tmp_path, uv_binary):
    """Return a bare node with the install.sh of this tree, unstamped."""
    made = Node(tmp_path, uv_binary)
    made.script.write_text((ROOT / "install.sh").read_text())
    return made


@pytest.fixture
def release(node, served):
    """Return a node whose install.sh was stamped with a release that loopback serves; uv is there already."""
    wheel = tool_wheel(served.folder)
    requirements = node.tmp.parent / "runtime.txt"
    requirements.write_text("# nothing\n")
    words = [str(wheel), "--install-sh", str(ROOT / "install.sh"), "--requirements", str(requirements)]
    assert stamper().main([*words, "--output", str(node.script)]) == 0
    node.env["VERL_ENV_BASE_URL"] = served.url
    node.without_pip()
    node.give_uv()
    node.served = served
    return node


@pytest.fixture
def checkout(node):
    """Return a node with a small checkout that builds with no network, its install.sh beside it; uv is there already."""
    folder = node.tmp.parent / "check out"
    (folder / "installer/verl_env").mkdir(parents=True)
    (folder / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        f'[project]\nname = "verl-env"\nversion = "{VERSION}"\n'
    )
    (folder / "backend.py").write_text(
        "import pathlib\n"
        "def build_wheel(out, settings=None, metadata=None):\n"
        "    import zipfile\n"
        f"    name = {WHEEL!r}\n"
        f"    info = 'verl_env-{VERSION}.dist-info'\n"
        "    with zipfile.ZipFile(pathlib.Path(out) / name, 'w') as wheel:\n"
        "        for file in pathlib.Path('installer/verl_env').glob('*.py'):\n"
        "            wheel.write(file, f'verl_env/{file.name}')\n"
        f"        wheel.writestr(info + '/METADATA', 'Metadata-Version: 2.1\\nName: verl-env\\nVersion: {VERSION}\\n')\n"
        "        wheel.writestr(info + '/WHEEL', 'Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')\n"
        "        wheel.writestr(info + '/entry_points.txt', '[console_scripts]\\nverl-env = verl_env.cli:main\\n')\n"
        "        wheel.writestr(info + '/RECORD', '')\n"
        "    return name\n"
    )
    (folder / "installer/verl_env/__init__.py").write_text("")
    (folder / "installer/verl_env/cli.py").write_text(CLI.format(version=VERSION, word="checkout"))
    (folder / "requirements").mkdir()
    (folder / "requirements/runtime.txt").write_text("")
    node.script = folder / "install.sh"
    node.script.write_text((ROOT / "install.sh").read_text())
    node.folder = folder
    node.without_pip()
    node.give_uv()
    return node


@pytest.fixture(params=sorted(SHELLS))
def shell(request):
    """Return each shell that install.sh promises to run under."""
    if not shutil.which(SHELLS[request.param][0]):
        pytest.skip(f"no {request.param} here")
    return request.param
