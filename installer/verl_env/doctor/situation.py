"""What a look has to go by: the machine, the environment in question, the matrix, how patient to be."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from verl_env.capture.layout import Layout, find_layout
from verl_env.environment.receipt import Receipt, find_environment, read_receipt
from verl_env.lock.package import Package
from verl_env.matrix.matrix import Matrix
from verl_env.node.facts import Node
from verl_env.node.host import Host

# Run by the environment's own Python, isolated; it prints one JSON object and imports nothing of the environment.
_SCRIPT = """
import json, os, platform, sys, sysconfig
print(json.dumps({
    "version": platform.python_version(), "prefix": sys.prefix, "base": sys.base_prefix,
    "include": sysconfig.get_path("include"), "shared": bool(sysconfig.get_config_var("Py_ENABLE_SHARED")),
    "library": sysconfig.get_config_var("INSTSONAME") or "", "libdir": sysconfig.get_config_var("LIBDIR") or "",
}))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The environment that is looked at. `answers` is what its Python said of itself; empty when it did not start.

    `late` is whether it was ended because its time was over.
    """

    folder: Path
    python: Path
    receipt: Receipt | None = None
    layout: Layout | None = None
    packages: tuple[Package, ...] = ()
    answers: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""
    late: bool = False

    def version_of(self, name: str) -> str | None:
        """Return the version of an installed package."""
        return next((it.version for it in self.packages if it.name == name), None)

    @property
    def cuda(self) -> str | None:
        """The CUDA that torch was built for, as `13.0`, by its local version label."""
        label = (self.version_of("torch") or "").partition("+")[2]
        return f"{label[2:-1]}.{label[-1]}" if label.startswith("cu") and label[2:].isdigit() else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """Everything a check may use. `node` may be described; `here` is whether it is the one we run on."""

    host: Host
    node: Node
    here: bool = True
    deep: bool = False
    subject: Subject | None = None
    matrix: Matrix | None = None

    @property
    def environ(self) -> Mapping[str, str]:
        """The variables that are judged."""
        return self.host.environ

    @property
    def row(self) -> str:
        """Name the environment's row in a sentence, or nothing."""
        receipt = self.subject.receipt if self.subject else None
        return f"row {receipt.row}" if receipt else "this environment"


def find_subject(given: str | None, host: Host, *, limit: float) -> Subject | None:
    """Return the environment by name, folder or Python; None when none is named and none is in use.

    Raises UsageError or NoEnvironmentError for one that is named and is not there.
    """
    from verl_env import paths

    receipt: Receipt | None
    if given is None:
        if not paths.current().exists():
            return None
        folder, receipt = find_environment(None)
    elif "/" in given or given == ".":
        layout = find_layout(given)
        folder, receipt = layout.prefix, read_receipt(layout.prefix)
    else:
        folder, receipt = find_environment(given)
    layout = find_layout(str(folder))
    python = _python_of(given, folder)
    answers, error, late = _ask(python, host, limit)
    return Subject(
        folder=folder,
        python=python,
        receipt=receipt,
        layout=layout,
        packages=_packages(layout.folders),
        answers=answers,
        error=error,
        late=late,
    )


def _python_of(given: str | None, folder: Path) -> Path:
    """Return the program: the one that was named, or the environment's own."""
    if given and (path := Path(given).expanduser()).is_file():
        return path
    return next((it for name in ("python", "python3") if (it := folder / "bin" / name).exists()), folder / "bin/python")


def _ask(python: Path, host: Host, limit: float) -> tuple[dict[str, Any], str, bool]:
    """Run the Python, isolated from variables and user site: its answers, else why there are none."""
    done = host.run([python, "-I", "-S", "-c", _SCRIPT], limit=limit)
    try:
        answers = json.loads(done.stdout)
    except ValueError:
        said = (
            f"no answer within {limit:g} s"
            if done.timed_out
            else " ".join(done.tail(1)) or f"ends with {done.returncode}"
        )
        return {}, said, done.timed_out
    return (answers, "", False) if isinstance(answers, dict) else ({}, "no answer", False)


def _packages(folders: tuple[Path, ...]) -> tuple[Package, ...]:
    """Return what is installed, by the metadata alone; the first of a name counts, as for Python."""
    from importlib import metadata

    from packaging.utils import canonicalize_name

    found: dict[str, Package] = {}
    for distribution in metadata.distributions(path=[str(folder) for folder in folders]):
        said = distribution.metadata
        if not said["Name"]:
            continue
        name = canonicalize_name(said["Name"])
        requires = tuple(said.get_all("Requires-Dist") or ())
        found.setdefault(name, Package(name=name, version=said["Version"], requires=requires))
    return tuple(found[name] for name in sorted(found))
