"""A Python that an environment can rest on, asked what it has: its packages, where they lie, and their digest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from verl_env import process
from verl_env.errors import PreflightError
from verl_env.node.facts import Interpreter

_SECONDS = 60.0
# Runs in the base, in the grammar of every Python that it may be. A package that stands twice on the path counts
# where Python finds it first. RECORD's hash tells a rebuilt package of the same version from the one that was there.
_SCRIPT = r"""
import hashlib, json, os, platform, re, sys, sysconfig
from importlib.metadata import distributions
own = [os.path.realpath(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")]
own += [os.path.join(folder, "lib-dynload") for folder in own]
folders = [p for p in sys.path if os.path.isdir(p) and os.path.realpath(p) not in own]
def hooks(path):
    try:
        return [line.strip() for line in open(str(path), encoding="utf-8") if line.startswith(("import ", "import\t"))]
    except OSError:
        return []
found = {}
for it in distributions():
    name = it.metadata["Name"]
    if not name or name.lower() in found:
        continue
    record = it.read_text("RECORD") or ""
    points = it.read_text("entry_points.txt") or ""
    part = re.search(r"\[console_scripts\]\s*\n([^\[]*)", points)
    lines = part.group(1).splitlines() if part else []
    scripts = dict(re.split(r"\s*=\s*", line.split("#")[0].strip(), maxsplit=1) for line in lines if "=" in line)
    names = re.findall(r"(?m)^\"?(?:\.\./)+bin/([^,\"/]+)", record)
    found[name.lower()] = {
        "name": name, "version": it.version, "record": hashlib.sha256(record.encode()).hexdigest(),
        "scripts": scripts, "programs": [n for n in names if n not in scripts],
        "hooks": [h for n in re.findall(r"(?m)^\"?([^/,\"]+\.pth)\"?,", record) for h in hooks(it.locate_file(n))],
    }
cuda = None
for folder in sys.path:
    if os.path.isfile(folder + "/torch/version.py"):
        text = open(folder + "/torch/version.py", encoding="utf-8").read()
        match = re.search(r"(?m)^cuda\b[^=]*=\s*['\"]([\d.]+)['\"]", text)
        cuda = match.group(1) if match else ""
        break
print(json.dumps({
    "version": platform.python_version(), "executable": getattr(sys, "_base_executable", None) or sys.executable,
    "bin": os.path.join(sys.prefix, "bin"), "folders": folders, "cuda": cuda, "packages": list(found.values()),
}))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """What a receipt keeps of the base: `digest` of its Python and packages, `used` as `name version`.

    `folders` are those that it looks for packages in, in its order.
    """

    python: str
    version: str
    digest: str
    folders: tuple[str, ...]
    used: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """One package of a base.

    `scripts` are its console scripts' functions, `programs` other files in its `bin`, `hooks` the lines of its own
    .pth files that run when Python starts.
    """

    name: str
    version: str
    record: str
    scripts: Mapping[str, str] = field(default_factory=dict)
    programs: tuple[str, ...] = ()
    hooks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseRead:
    """A base as it is now. `executable` is the Python beneath a virtual environment; `cuda` torch's, "" for none.

    `cuda` is None where there is no torch.
    """

    python: str
    version: str
    executable: str
    bin: str
    folders: tuple[str, ...]
    packages: tuple[Installed, ...]
    cuda: str | None = None

    @property
    def interpreter(self) -> Interpreter:
        """The Python that an environment over this base is made from."""
        return Interpreter(path=self.executable, kind="base", source=self.python, version=self.version, starts=True)

    @property
    def versions(self) -> dict[str, str]:
        """Versions by normalised name."""
        return {it.name: it.version for it in self.packages}

    @property
    def digest(self) -> str:
        """The digest of the Python's version and of every package's name, version and RECORD."""
        lines = [f"{it.name} {it.version} {it.record}\n" for it in sorted(self.packages, key=lambda it: it.name)]
        content = f"python {self.version}\n{''.join(lines)}"
        return "sha256:" + hashlib.sha256(content.encode()).hexdigest()


def read_base(python: Path) -> BaseRead:
    """Ask a Python for what it has; raises PreflightError when it does not answer."""
    try:
        done = process.run([str(python), "-I", "-c", _SCRIPT], timeout=_SECONDS)
    except OSError as err:
        raise PreflightError(f"`{python}` does not start: {err.strerror}", hint="name a Python: --base PYTHON") from err
    try:
        plain: dict[str, Any] = json.loads(done.stdout)
    except ValueError as err:
        raise PreflightError(
            f"`{python}` does not say what it has", details=done.tail(6), hint="name a Python 3.8 or newer"
        ) from err
    return BaseRead(
        python=str(python.absolute()),
        version=plain["version"],
        executable=plain["executable"],
        bin=plain["bin"],
        folders=tuple(plain["folders"]),
        cuda=plain["cuda"],
        packages=tuple(
            Installed(
                name=canonicalize_name(it["name"]),
                version=it["version"],
                record=it["record"],
                scripts=it["scripts"],
                programs=tuple(it["programs"]),
                hooks=tuple(it["hooks"]),
            )
            for it in plain["packages"]
        ),
    )


def changes_of(base: Base) -> tuple[str, ...]:
    """Say how a base differs from what it was when an environment was laid over it; empty when it does not."""
    try:
        now = read_base(Path(base.python))
    except PreflightError as err:
        return (err.message,)
    if now.digest == base.digest:
        return ()
    versions = now.versions
    said = [f"Python {base.version} is now {now.version}"] if now.version != base.version else []
    for line in base.used:
        name, _, version = line.partition(" ")
        if versions.get(name) != version:
            said.append(f"{line} is now {versions.get(name, 'gone')}")
    return tuple(said) or ("packages of it were added, removed or built again",)
