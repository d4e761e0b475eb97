"""What verl-env itself needs on a node with no network: its own wheel, pure wheels of what it imports, and uv."""

from __future__ import annotations

import base64
import hashlib
import io
import zipfile
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import verl_env
from verl_env import toml, uv
from verl_env.errors import ResolveError
from verl_env.lock.locate import base_options
from verl_env.lock.render import file_of
from verl_env.matrix.load import shipped
from verl_env.matrix.pins import Pin

if TYPE_CHECKING:
    from collections.abc import Iterator

    from verl_env.indexes import Indexes

OLDEST_PYTHON = "3.10"  # pyproject.toml, requires-python
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the oldest time that a zip can say
_NAME = "verl-env"


@dataclass(frozen=True, slots=True, kw_only=True)
class Needed:
    """One wheel that verl-env needs; `marker` says on which Pythons."""

    pin: Pin
    marker: str = ""

    @property
    def line(self) -> str:
        """The line of a requirements file."""
        marker = f" ; {self.marker}" if self.marker else ""
        return f"{self.pin.name}=={self.pin.version}{marker} --hash=sha256:{self.pin.sha256}\n"


def own_wheel() -> tuple[str, bytes]:
    """Pack the verl-env that runs as a wheel; the same files give the same bytes."""
    info = f"verl_env-{verl_env.__version__}.dist-info"
    files = {name: path.read_bytes() for name, path in own_files()}
    files[f"{info}/METADATA"] = _metadata().encode()
    files[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: verl-env\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files[f"{info}/entry_points.txt"] = b"[console_scripts]\nverl-env = verl_env.cli:main\n"
    record = "".join(_record(name, content) for name, content in files.items())
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            wheel.writestr(entry, content)
    return f"verl_env-{verl_env.__version__}-py3-none-any.whl", packed.getvalue()


def own_files() -> Iterator[tuple[str, Path]]:
    """Yield the package's files and the shipped matrix, in a fixed order."""
    package = Path(verl_env.__file__).parent
    for base, name in ((package, "verl_env"), (shipped(), "verl_env/matrices")):
        for path in sorted(base.rglob("*")):
            inside = path.relative_to(base)
            hidden = "__pycache__" in inside.parts or any(part.startswith(".") for part in inside.parts)
            if path.is_file() and not hidden and not (base is package and inside.parts[0] == "matrices"):
                yield f"{name}/{inside.as_posix()}", path


def _record(name: str, content: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(content)}\n"


def own_requirements() -> tuple[str, ...]:
    """Return what verl-env depends on: from the project file of a checkout, else from its installed metadata."""
    project = Path(verl_env.__file__).parents[2] / "pyproject.toml"
    if project.is_file():
        plain: dict[str, Any] = toml.loads(project.read_text(encoding="utf-8"))["project"]
        if plain.get("name") == _NAME:
            return tuple(plain["dependencies"])
    return tuple(it for it in metadata.requires(_NAME) or () if "extra ==" not in it)


def _metadata() -> str:
    lines = ["Metadata-Version: 2.1", f"Name: {_NAME}", f"Version: {verl_env.__version__}"]
    lines += [f"Requires-Python: >={OLDEST_PYTHON}", *(f"Requires-Dist: {it}" for it in own_requirements())]
    return "\n".join(lines) + "\n"


def resolve_needed(indexes: Indexes, arch: str) -> tuple[Needed, ...]:
    """Resolve what verl-env needs for every Python it runs on, in the versions that run here where there are any."""
    here = "".join(
        f"{name}=={it.version}\n" for it in metadata.distributions() if (name := it.metadata["Name"]) and name != _NAME
    )
    words = ["--universal", "--python-version", OLDEST_PYTHON, "--no-build", "--no-python-downloads"]
    words += base_options(indexes)
    document = uv.compile_pylock(
        "".join(f"{it}\n" for it in own_requirements()), [*words, "--constraints", "here.txt"], {"here.txt": here}
    )
    return tuple(_needed(package, arch) for package in document["packages"])


def _needed(package: dict[str, Any], arch: str) -> Needed:
    """Choose the one wheel of a package that every Python takes: pure, or for this architecture (uv)."""
    name = package["name"]
    wheels = [(it, it.get("name") or file_of(it.get("url") or it.get("path", ""))) for it in package.get("wheels", ())]
    for ending in ("-none-any.whl", f"manylinux2014_{arch}.whl", f"_{arch}.whl"):
        for wheel, file in wheels:
            size = _size(wheel)
            suits = ending in file and file.split("-")[-2] == "none" and "musllinux" not in file.split(".")[0]
            if suits and size is not None and "sha256" in wheel.get("hashes", {}):
                sha256 = wheel["hashes"]["sha256"]
                pin = Pin(name=name, version=package["version"], file=file, size=size, sha256=sha256)
                return Needed(pin=pin, marker=package.get("marker", ""))
    raise ResolveError(
        f"no wheel of {name} {package['version']} runs on every Python with {arch}",
        hint="use an index that has its `none-any` wheel and states sizes",
    )


def _size(wheel: dict[str, Any]) -> int | None:
    """Return a wheel's size in bytes: what the index says, or what lies on this disk."""
    place = urlsplit(wheel.get("url") or wheel.get("path", ""))
    if "size" in wheel or place.scheme not in ("", "file"):
        return wheel.get("size")
    path = Path(unquote(place.path))
    return path.stat().st_size if path.is_file() else None


def render_requirements(needed: tuple[Needed, ...], own: tuple[str, bytes]) -> str:
    """Write the requirements that the target installs, each with its hash; they lie beside their wheels."""
    name, content = own
    lines = "".join(it.line for it in needed)
    return f"{lines}./{name} --hash=sha256:{hashlib.sha256(content).hexdigest()}\n"


def read_requirements(text: str, wheels: dict[str, tuple[int, str]]) -> tuple[Needed, ...]:
    """Read such a file back; `wheels` are size and file name by sha256."""
    found = []
    for line in text.splitlines():
        said, _, digest = line.rpartition(" --hash=sha256:")
        if said.startswith("./"):
            continue
        requirement = Requirement(said)
        marker = said.partition(" ; ")[2]  # as it stands: packaging would quote it otherwise
        size, file = wheels[digest]
        pin = Pin(
            name=canonicalize_name(requirement.name),
            version=next(iter(requirement.specifier)).version,
            file=file,
            size=size,
            sha256=digest,
        )
        found.append(Needed(pin=pin, marker=marker))
    return tuple(found)
