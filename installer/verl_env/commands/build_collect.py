"""`verl-env build PACKAGE --collect DIR`: everything that a build starts from, for a node with no network."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from verl_env.builds.gather import gather
from verl_env.commands.build_subject import indexes_of, read_build, row_of
from verl_env.matrix.load import load_matrix
from verl_env.node.system import read_machine
from verl_env.output import Result, human_bytes

if TYPE_CHECKING:
    import argparse

_GLIBC = "2.28"  # the node that they are carried to may be old


def collect(args: argparse.Namespace) -> Result:
    """Bring the sdist and the build requirements of every Python of the row into a folder; it needs no environment."""
    entry = row_of(args)
    build = read_build(entry, args.package)
    machine = read_machine().value
    wanted = {
        pin.file: pin for python in entry.row.python for pin in (build.pin, *build.requires_on(python, machine, _GLIBC))
    }
    folder = Path(args.collect).expanduser().absolute()
    size = human_bytes(sum(pin.size for pin in wanted.values()))
    data = {"folder": str(folder), "files": sorted(wanted), "changed": not args.dry_run}
    if args.dry_run:
        return Result(data=data, text=f"would bring {len(wanted)} files, {size}, into {folder}")
    gather(tuple(wanted.values()), folder, entry.row.python[0], indexes_of(args), load_matrix(args.matrix).facts)
    lines = [f"{len(wanted)} files, {size}, are in {folder}"]
    lines.append(f"there: verl-env build {build.package} --row {entry.id} --find-links {folder.name}")
    return Result(data=data, text="\n".join(lines))
