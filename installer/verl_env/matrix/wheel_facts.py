"""For maintainers: what torch.toml says of a wheel, read from it.

Run `python -m verl_env.matrix.wheel_facts WHEEL…`. The CUDA major comes from the linked libcudart, its minor
from torch's own version.py or from the device code (asks cuobjdump, which must be on PATH for that), the
architectures from the headers of the device code, the glibc floor from the symbol versions that the libraries
ask for. Needs pyelftools.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import tempfile
import zipfile
from dataclasses import fields
from email.parser import HeaderParser
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import parse_wheel_filename
from packaging.version import Version

from verl_env import process
from verl_env.matrix.device_code import toolkit_of
from verl_env.matrix.facts import BuildFacts
from verl_env.matrix.libraries import Library, built_for, read_library

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from packaging.tags import Tag

PYTHONS = tuple(f"3.{minor}" for minor in range(9, 16))


def read_wheel(wheel: Path) -> BuildFacts:
    """Open a wheel and return what torch.toml says of it."""
    name, version, _, tags = parse_wheel_filename(wheel.name)
    with zipfile.ZipFile(wheel) as archive, tempfile.TemporaryDirectory(dir=wheel.parent) as folder:
        libraries, toolkit = read_libraries(archive, Path(folder))
        inside = torch_version(archive)
        (entry,) = (it for it in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", it))
        metadata = HeaderParser().parsestr(archive.read(entry).decode())
    floors = [it.glibc for it in libraries if it.glibc]
    platforms = sorted({tag.platform for tag in tags})
    coded = [it for it in libraries if it.units]
    built = built_for(coded)
    runtimes = sorted({lib[13:] for it in libraries for lib in it.needed if lib.startswith("libcudart.so.")})
    return BuildFacts(
        package=name,
        version=version.public,
        machine=re.sub(r"^(manylinux[0-9]*|linux)_(\d+_\d+_)?", "", platforms[0]),
        cuda=None if inside == "cpu" else inside or toolkit or next(iter(runtimes), None),
        cpu=inside == "cpu",
        local=version.local or (re.sub(r"^(\d+)\.", r"cu\1", inside) if inside else None),
        architectures=built.binaries if built else None,
        ptx=built.ptx if built else None,
        libraries=tuple(library_line(it) for it in coded),
        python=pythons(tags, metadata["Requires-Python"]),
        torch=torch_pin(metadata.get_all("Requires-Dist") or []),
        tag=".".join(platforms),
        glibc=str(max(floors)) if floors else None,
        read="wheel",
        source=wheel.name,
    )


def library_line(library: Library) -> str:
    """Say in one line what a library has any device code for."""
    said = " ".join([f"{library.file}:", *library.binaries])
    return said + (" · PTX " + " ".join(library.ptx) if library.ptx else "")


def read_libraries(archive: zipfile.ZipFile, folder: Path) -> tuple[list[Library], str | None]:
    """Read every shared library, one on disk at a time; the toolkit is of the smallest with device code."""
    libraries: list[Library] = []
    toolkit = None
    for info in sorted(archive.infolist(), key=lambda info: info.file_size):
        plain = re.sub(r"(\.so)(\.\d+)+$", r"\1", info.filename)
        if not plain.endswith(".so") or any(it.file == plain for it in libraries):
            continue
        path = folder / "library"
        with archive.open(info) as source, path.open("wb") as target:
            shutil.copyfileobj(source, target, 1 << 20)
        libraries.append(read_library(path, info.filename))
        if toolkit is None and libraries[-1].units:
            toolkit = tool_version(path)
        path.unlink()
    return sorted(libraries, key=lambda it: it.file), toolkit


def tool_version(path: Path) -> str | None:
    """Ask cuobjdump for the binaries in a library, and them for their toolkit; None when they cannot say."""
    cuobjdump = shutil.which("cuobjdump")
    if cuobjdump is None:
        return None
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        process.run([cuobjdump, "-xelf", "all", str(path)], cwd=Path(folder))
        found = {toolkit_of(piece.read_bytes()) for piece in Path(folder).iterdir()} - {None}
    return max((it for it in found if it), key=Version, default=None)


def torch_version(archive: zipfile.ZipFile) -> str | None:
    """Return the CUDA that torch's own version.py names, or `cpu`; None for other packages."""
    if "torch/version.py" not in archive.namelist():
        return None
    found = re.search(r"^cuda\b.*= '([\d.]+)'", archive.read("torch/version.py").decode(), re.MULTILINE)
    return found[1] if found else "cpu"


def pythons(tags: Iterable[Tag], requires: str | None) -> tuple[str, ...]:
    """Return the Pythons of a wheel: of its tags, or for a stable ABI those that its metadata allows."""
    tagged = {re.sub(r"^cp3", "3.", tag.interpreter) for tag in tags if tag.abi.startswith("cp3")}
    if tagged:
        return tuple(sorted(tagged, key=Version))
    floor = min((tag.interpreter[3:] for tag in tags if tag.interpreter.startswith("cp3")), default="0")
    allowed = SpecifierSet(requires or "") & SpecifierSet(f">=3.{floor}")
    return tuple(it for it in PYTHONS if allowed.contains(f"{it}.0"))


def torch_pin(requires: Sequence[str]) -> str | None:
    """Return the torch release that the metadata asks for; an extra's where nothing else is said."""
    wishes = [wish for wish in map(Requirement, requires) if wish.name == "torch"]
    wishes.sort(key=lambda wish: "extra ==" in str(wish.marker))
    found = [it[1] for wish in wishes if (it := re.fullmatch(r"==([\d.]+)", str(wish.specifier)))]
    return found[0] if found else None


def toml(build: BuildFacts) -> str:
    """Write an entry of torch.toml; what is not known is left out, an empty list is known to be empty."""
    lines = ["[[build]]"]
    for key in (field.name for field in fields(build)):
        value = getattr(build, key)
        if key == "libraries" and value:
            lines += ["libraries = [", *(f"    {json.dumps(it, ensure_ascii=False)}," for it in value), "]"]
        elif value is not None and value is not False and (value != () or key in {"architectures", "ptx"}):
            lines.append(f"{key} = {json.dumps(value)}")
    return "\n".join(lines)


def main() -> int:
    """Print an entry for each wheel that is named."""
    parser = argparse.ArgumentParser(
        prog="wheel_facts", description="Read a wheel's facts, as TOML.", allow_abbrev=False
    )
    parser.add_argument("wheel", nargs="+", type=Path)
    for wheel in parser.parse_args().wheel:
        print(toml(read_wheel(wheel)) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
