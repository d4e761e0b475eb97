"""`verl-env build PACKAGE`: compile a wheel that nobody publishes, once, for a row's environment; or adopt one."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING, Any

from verl_env.builds.jobs import beside
from verl_env.builds.wheelhouse import stored
from verl_env.commands.build_subject import Subject, read_subject, row_of
from verl_env.environment.build import WAIT_SECONDS
from verl_env.errors import UsageError
from verl_env.output import Result, human_bytes
from verl_env.records import to_plain

if TYPE_CHECKING:
    from verl_env.builds.make import Making
    from verl_env.builds.wheelhouse import Stored

_CAPABILITY = re.compile(r"\d{1,2}\.\d|all")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what to build, for what, from where, and how hard to work."""
    parser.add_argument(
        "package", nargs="?", metavar="PACKAGE", help="a build of the row (default: list what there is)"
    )
    parser.add_argument("--row", metavar="ID", help="the row it is for (default: the current environment's)")
    parser.add_argument("--environment", metavar="NAME", help="build in this environment of the row")
    parser.add_argument(
        "--arch",
        "--cuda-arch",
        dest="capabilities",
        action="append",
        type=_capability,
        default=[],
        metavar="X.Y",
        help="compile for GPUs of this compute capability, or `all` the row's (default: the GPUs that are here)",
    )
    source = parser.add_argument_group("where files come from")
    source.add_argument("--index", metavar="URL", help="package index in place of the one uv and pip are set up with")
    source.add_argument(
        "--find-links", action="append", default=[], metavar="DIR", help="look into this folder before any index"
    )
    source.add_argument(
        "--collect", metavar="DIR", help="only bring what the build needs into this folder, to carry it"
    )
    source.add_argument("--wheel", metavar="FILE|URL", help="adopt this wheel instead of compiling one")
    source.add_argument("--sha256", metavar="HEX", help="the hash of the wheel that is adopted")
    group = parser.add_argument_group("compiling")
    group.add_argument(
        "--jobs", type=_count, metavar="N", help="compilers beside each other (default: what memory holds)"
    )
    group.add_argument("--cuda-home", metavar="DIR", help="the toolkit to compile with (default: the environment's)")
    group.add_argument("--dry-run", action="store_true", help="say what would be done, and do nothing")
    group.add_argument(
        "--wait",
        type=float,
        default=WAIT_SECONDS,
        metavar="SECONDS",
        help=f"wait this long for another builder of the same wheel (default: {WAIT_SECONDS:.0f})",
    )


def _capability(text: str) -> str:
    if not _CAPABILITY.fullmatch(text):
        raise argparse.ArgumentTypeError(f"`{text}` is no compute capability, such as 9.0, and not `all`")
    return text


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"`{text}` is no number of compilers")
    return int(text)


def run(args: argparse.Namespace) -> Result:
    """List, collect, adopt or compile."""
    if args.package is None:
        return _listed(args)
    if bool(args.wheel) != bool(args.sha256):
        raise UsageError("--wheel and --sha256 go together", hint="name the hash that its publisher states")
    if args.collect:
        from verl_env.commands.build_collect import collect

        return collect(args)
    subject = read_subject(args)
    if args.wheel:
        from verl_env.commands.build_adopt import adopt

        return adopt(args, subject)
    return _compiled(args, subject)


def _compiled(args: argparse.Namespace, subject: Subject) -> Result:
    """Compile, unless the same inputs have given a wheel before."""
    from verl_env.builds.make import make
    from verl_env.builds.wheelhouse import checked, find
    from verl_env.commands.build_subject import making_of

    making = making_of(args, subject)
    if there := find(making.key):
        return _result(checked(there), subject, compiled=False)
    if args.dry_run:
        return Result(data=_planned(making, subject), text=_plan_text(making, subject))
    one, compiled = make(making, subject.indexes, subject.matrix.facts)
    return _result(one, subject, compiled=compiled)


def _listed(args: argparse.Namespace) -> Result:
    """Say what the row names, and what the wheelhouse has."""
    entry = row_of(args)
    there = stored()
    builds = [{"package": it.package, "version": it.version, "why": it.why} for it in entry.row.build]
    lines = [f"row {entry.id} names no builds"] if not builds else [f"row {entry.id} names:"]
    lines += [f"  {it.package} {it.version}: {it.why}" for it in entry.row.build]
    lines += ["the wheelhouse has:"] if there else ["the wheelhouse is empty"]
    lines += [f"  {_short(it)}" for it in there]
    data = {"row": entry.id, "builds": builds, "wheels": [_data_of(it) for it in there]}
    return Result(data=data, text="\n".join(lines))


def _short(one: Stored) -> str:
    record = one.record
    return (
        f"{record.package} {record.version} for {', '.join(record.architectures)}, Python {record.target.python}, "
        f"{record.kind} {record.made[:10]}: {one.wheel}"
    )


def _data_of(one: Stored) -> dict[str, Any]:
    return {"wheel": str(one.wheel), "record": to_plain(one.record)}


def _result(one: Stored, subject: Subject, *, compiled: bool) -> Result:
    """Say where the wheel is, what it took, and how it is used."""
    record = one.record
    lines = [f"{record.package} {record.version} is {'built' if compiled else 'there already'}: {one.wheel}"]
    lines.append(f"sha256 {record.sha256}, {human_bytes(record.size)}, for {', '.join(record.architectures)}")
    if record.effort:
        lines.append(
            f"{record.effort.compiled} files in {record.effort.seconds / 60:.1f} min, {beside(record.effort.jobs)}, "
            f"{human_bytes(record.effort.peak)} of memory at most"
        )
    lines.append(f"install it: verl-env install --row {subject.entry.id}")
    return Result(data=_data_of(one) | {"changed": compiled}, text="\n".join(lines))


def _planned(making: Making, subject: Subject) -> dict[str, Any]:
    return {
        "key": making.key,
        "row": subject.entry.id,
        "environment": subject.folder.name,
        "inputs": to_plain(making.inputs),
        "cuda_home": making.cuda_home,
        "jobs": making.jobs,
        "changed": False,
    }


def _plan_text(making: Making, subject: Subject) -> str:
    inputs = making.inputs
    memory = human_bytes(making.build.job_gb * 10**9)
    lines = [
        f"would compile {inputs.package} {inputs.version}+{inputs.target.label} for {', '.join(inputs.architectures)}",
        f"against torch {inputs.target.torch} of {subject.folder.name}, Python {inputs.target.python}",
        f"with nvcc {inputs.nvcc} ({making.cuda_home}) and {making.maker.compiler}",
        f"with {beside(making.jobs)} ({making.maker.cores} cores, {memory} for each compiler)",
        f"into {making.key} of the wheelhouse",
    ]
    return "\n".join(lines)
