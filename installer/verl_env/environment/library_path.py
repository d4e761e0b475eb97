"""LD_LIBRARY_PATH, folder by folder: what stands in front of the environment's own libraries is taken out.

The loader looks there before it looks where torch's and NVIDIA's wheels say (DT_RUNPATH), and `dlopen` by name always
does. It is filtered, not emptied: it may be the only way to the driver, to a compat libcuda, or to a network's plugins.
`posix_shell` writes the same rules for shells.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from verl_env.environment.overlay import LINK

if TYPE_CHECKING:
    from collections.abc import Iterator

NAME = "LD_LIBRARY_PATH"
# Where wheels keep libraries under their plain names; auditwheel's, in `*.libs`, have names that nobody else's have.
_OWN = ("nvidia/*/lib/*.so*", "torch/lib/*.so*")
_STEM = re.compile(r"(.+?\.so)(\.[\d.]+)?")
DRIVER = ("libcuda.so.1", "libnvidia-ml.so.1")
# Plugins of NCCL, and what carries RDMA: libfabric, verbs and their providers, UCX, SHARP, GDRCopy, Slingshot.
PLUGINS = (
    "libnccl-", "libfabric.so", "libibverbs.so", "librdmacm.so", "libmlx5.so", "libefa.so", "libucp.so", "libuct.so",
    "libucs.so", "libsharp", "libgdrapi.so", "libcxi.so",
)  # fmt: skip
_DEFAULT = re.compile(r"(/usr)?/lib(64|/[^/]+-linux-gnu)?/?")  # the loader looks there without being told


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One folder of the list, whether it stays, and why."""

    folder: str
    kept: bool
    why: str


def owned_libraries(environment: Path) -> tuple[str, ...]:
    """Return the libraries that an environment (and the base that it rests on) brings, without their versions."""
    places = package_folders(environment)
    names = (it.name for place in places for pattern in _OWN for it in place.glob(pattern))
    return tuple(sorted({match[1] for name in names if (match := _STEM.fullmatch(name))}))


def package_folders(environment: Path) -> list[Path]:
    """Return the folders of an environment's packages, and of those of the base that it rests on."""
    places = list(environment.glob("lib/python*/site-packages"))
    for link in [place / LINK for place in places]:
        lines = link.read_text(encoding="utf-8").splitlines() if link.is_file() else []
        places += [Path(line) for line in lines if line.startswith("/")]
    return places


def judge_parts(value: str, environment: Path, owned: tuple[str, ...]) -> tuple[Part, ...]:
    """Return each folder of a list with the judgement on it; an empty one means the working folder."""
    return tuple(_judge(folder, str(environment), owned) for folder in value.split(":")) if value else ()


def joined(parts: tuple[Part, ...]) -> str:
    """Return the list of those that stay."""
    return ":".join(part.folder for part in parts if part.kept)


def _judge(folder: str, environment: str, owned: tuple[str, ...]) -> Part:
    """Judge one folder."""
    kept, why = True, "it shadows nothing of the environment"
    if not folder.startswith("/"):
        kept, why = False, "it is another folder wherever a program is started"
    elif folder.rstrip("/").endswith("/stubs"):
        kept, why = False, "stubs are for linking: every call fails"
    elif f"{folder}/".startswith(f"{environment}/"):
        why = "the environment's own"
    elif os.path.isdir(f"{folder}/../conda-meta"):
        kept, why = False, "conda's"
    elif shadowed := next(_shadowed(names := _names_in(folder), owned), None):
        kept, why = _judge_shadow(folder, names, shadowed)
    return Part(folder=folder, kept=kept, why=why)


def _judge_shadow(folder: str, names: tuple[str, ...], shadowed: str) -> tuple[bool, str]:
    """Judge a folder that has a library of the environment's names: some are needed all the same."""
    why = f"it has {shadowed}, which the environment brings"
    if _DEFAULT.fullmatch(folder):
        return False, f"{why}; what else is in it is found without"
    for wanted, what in ((DRIVER, "the driver's libraries are in it"), (PLUGINS, "the network's plugins are in it")):
        if found := next((name for name in names if name.startswith(wanted)), None):
            return True, f"{what} ({found}), though {why}"
    return False, why


def _shadowed(names: tuple[str, ...], owned: tuple[str, ...]) -> Iterator[str]:
    """Yield the names that the loader could take for an environment's own."""
    return (name for name in names if name.startswith(owned))


def _names_in(folder: str) -> tuple[str, ...]:
    """Return the names of a folder's libraries, sorted; none when it cannot be read."""
    try:
        return tuple(sorted(name for name in os.listdir(folder) if ".so" in name))
    except OSError:
        return ()
