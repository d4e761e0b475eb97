"""What verl-env depends on, packed from this Python's own packages: an index of it with no network."""

from __future__ import annotations

import base64
import hashlib
import os
import zipfile
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

from tiny import MACHINE, build_wheel
from verl_env.bundle.tool import own_requirements

# Wanted below Python 3.11 only: a resolution for every Python asks for them everywhere.
OLDER = ("exceptiongroup", "tomli")


def own_wheels(folder) -> None:
    """Write a wheel of every package that verl-env needs, in the version that is installed here."""
    waiting = [Requirement(it).name for it in own_requirements()] + list(OLDER)
    seen = set()
    while waiting:
        name = waiting.pop().lower().replace("_", "-")
        if name in seen:
            continue
        seen.add(name)
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            build_wheel(folder, name, "9.9")
            continue
        _pack(folder, distribution)
        for line in distribution.requires or ():
            wanted = Requirement(line)
            if "extra" not in str(wanted.marker or ""):
                waiting.append(wanted.name)


def _pack(folder, distribution) -> None:
    """Pack one installed package: what its RECORD names, but for bytecode and launchers; uv's program too."""
    name, version = distribution.metadata["Name"].replace("-", "_"), distribution.version
    info = f"{name}-{version}"
    tag = f"py3-none-manylinux2014_{MACHINE}" if name == "uv" else "py3-none-any"
    record = []
    with zipfile.ZipFile(folder / f"{info}-{tag}.whl", "w") as wheel:

        def add(path, content):
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            record.append(f"{path},sha256={digest},{len(content)}\n")
            wheel.writestr(path, content)

        for it in distribution.files:
            where = Path(distribution.locate_file(it))
            inside = not str(it).startswith("..") and it.suffix != ".pyc" and it.name not in ("RECORD", "INSTALLER")
            if inside and not it.parts[0].endswith(".dist-info") and where.is_file():
                add(str(it), where.read_bytes())
            elif it.name == name == "uv":
                add(f"{info}.data/scripts/uv", where.read_bytes())
        add(f"{info}.dist-info/METADATA", distribution.read_text("METADATA").encode())
        add(f"{info}.dist-info/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n".encode())
        wheel.writestr(f"{info}.dist-info/RECORD", "".join(record) + f"{info}.dist-info/RECORD,,\n")


def without_network(words) -> list[str]:
    """Return a command that runs in a network namespace of its own, with no interface but a dead loopback."""
    return ["unshare", "--map-root-user", "--net", *map(os.fspath, words)]
