"""`verl-env capture`: a working environment, or what someone pasted of one, becomes a lock."""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verl_env import output
from verl_env.errors import LockError, ResolveError, UsageError, VerlEnvError
from verl_env.output import Result

if TYPE_CHECKING:
    import argparse

    from verl_env.capture.work import Capture
    from verl_env.lock.coherence import Incoherence

EXIT_UNAVAILABLE = ResolveError.exit_code


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what to capture, and where to write."""
    parser.add_argument("subject", nargs="?", metavar="PYTHON|ENV", help="default: the active environment")
    parser.add_argument(
        "--from", dest="list", metavar="FILE", help="a report, a freeze or any other list (- for stdin)"
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="where to write (default: pylock.<name>.toml here)")
    parser.add_argument("--name", default="captured", metavar="NAME", help="name of the lock (default: captured)")
    parser.add_argument("--with-patches", action="store_true", help="keep edited files as a patch beside the lock")
    parser.add_argument("--partial", action="store_true", help="write a lock of what can be had, without the rest")
    parser.add_argument("--no-lock", action="store_true", help="only say what it is; no index is asked")
    parser.add_argument("--dry-run", action="store_true", help="do everything but write")
    parser.add_argument("--quick", action="store_true", help="do not hash files, nor compare them with the index")
    parser.add_argument("--python", metavar="X.Y", help="the Python to lock for, where a list does not say")
    parser.add_argument("--allow", action="append", default=[], metavar="RULE", help="set a rule of coherence aside")
    parser.add_argument("--index", metavar="URL", help="package index in place of the one uv and pip are set up with")


def run(args: argparse.Namespace) -> Result:
    """Read, compare with the nearest row, find every file, write the lock; exit code 5 when something cannot be had."""
    from verl_env.commands.capture_text import data_of, text_of

    if args.list and args.subject:
        raise UsageError("give an environment or --from FILE, not both", hint="see `verl-env capture --help`")
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]*", args.name):
        raise UsageError(f"`{args.name}` is no name for a lock", hint="use a-z, 0-9 and -")
    capture = _read(args)
    if not capture.listing.packages:  # a node alone: nothing can be locked but a row
        args.no_lock = True
    try:
        if not args.no_lock:
            _find(capture, args)
        if not (args.no_lock or (capture.unavailable and not args.partial)):
            _lock(capture, args)
    except VerlEnvError as err:
        err.data = data_of(capture)
        raise
    failed = bool(capture.unavailable) and not args.partial and not args.no_lock
    return Result(data=data_of(capture), text=text_of(capture, args), exit_code=EXIT_UNAVAILABLE if failed else 0)


def _read(args: argparse.Namespace) -> Capture:
    """Read what is there, and what it is nearest to."""
    from verl_env.capture.compare import compare
    from verl_env.capture.environment import read_environment
    from verl_env.capture.recognise import read_file
    from verl_env.capture.subject import environment_path, row_listing
    from verl_env.capture.understood import understand
    from verl_env.capture.work import Capture
    from verl_env.indexes import read_indexes
    from verl_env.matrix.load import load_matrix, load_pins

    matrix = load_matrix(args.matrix)
    environment = None
    if args.list:
        listing = read_file(Path(args.list))
    else:
        place = environment_path(args.subject) if args.subject else None
        environment = read_environment(place, verify=not args.quick)
        listing = environment.listing()
    understood = understand(listing, matrix)
    entry = understood.nearest.entry if understood.nearest else None
    python = _minor(args.python) or listing.minor or (entry.row.python[0] if entry else "3.12")
    capture = Capture(
        listing=listing,
        matrix=matrix,
        indexes=read_indexes(args.index),
        understood=understood,
        python=python,
        arch=listing.machine or "x86_64",
        environment=environment,
    )
    header = entry.variant(python, capture.arch) if entry else None
    if entry and header:
        capture.near = (entry, load_pins(entry, header))
        capture.differences = compare(listing, row_listing(entry, capture.near[1]), matrix.facts)
    elif entry:
        capture.differences = compare(listing, row_listing(entry), matrix.facts)
    return capture


def _minor(given: str | None) -> str | None:
    from verl_env.environment.preflight import minor_of

    return minor_of(given) if given else None


def _find(capture: Capture, args: argparse.Namespace) -> None:
    """Find every file on the indexes; say of each package how sure it is."""
    from verl_env.capture.edits import compare_records, make_patch
    from verl_env.capture.on_index import find_files
    from verl_env.capture.plan import plan_environment, plan_list
    from verl_env.capture.resolve_list import resolve_list

    facts, environment = capture.matrix.facts, capture.environment
    in_row = frozenset(pin.name for pin in capture.near[1].pins) if capture.near else frozenset()
    plan = plan_environment(environment) if environment else plan_list(capture.listing, in_row)
    output.note(f"looking for {len(plan.wanted)} packages (cp{capture.python}, {capture.arch})")
    held, missing = find_files(plan.wanted, capture.python, capture.arch, capture.indexes, facts)
    capture.plan, capture.unavailable = plan, (*plan.unavailable, *missing)
    if not capture.listing.complete and not capture.unavailable:
        held, missing = resolve_list(capture.listing, held, capture.python, capture.arch, capture.indexes, facts)
        capture.unavailable = missing
    if environment and not args.quick:
        sure, capture.doubts = compare_records(environment, held, capture.indexes)  # type: ignore[assignment]
        held = tuple(replace(it, sure=sure[it.pin.name]) for it in held)
    capture.held, capture.git = held, plan.git
    _find_build_needs(capture)
    if environment and args.with_patches:
        capture.patch = make_patch(environment, held, capture.indexes)


def _find_build_needs(capture: Capture) -> None:
    """Pin what is needed to build what is there as source only; what cannot be built so cannot be had."""
    from verl_env.capture.build_needs import Sources, pin_build_needs
    from verl_env.capture.sizes import sized

    sdists = tuple(it for it in capture.held if it.pin.is_sdist)
    if not (sdists or capture.git):
        return
    near = capture.near[1] if capture.near else None
    if near and not capture.git and {it.pin for it in sdists} <= set(near.pins):
        capture.build = near.build  # the row's own sdists: what they are built with is proved
        return
    sources = Sources(sdists=sdists, git=capture.git, folders=capture.plan.folders if capture.plan else {})
    found = pin_build_needs(sources, near.build if near else (), capture.python, capture.arch, capture.indexes)
    lost = {it.name for it in found.unavailable}
    capture.unavailable += found.unavailable
    capture.held = tuple(it for it in capture.held if it.pin.name not in lost)
    capture.git = tuple(it for it in capture.git if it.name not in lost)
    capture.build = tuple(sized(it, capture.indexes) for it in found.held)


def _lock(capture: Capture, args: argparse.Namespace) -> None:
    """Hold what was found together, and write the lock with its patch beside it."""
    from verl_env.capture.rebuild import Target, captured_lock, cuda_of_set
    from verl_env.capture.sizes import sized
    from verl_env.commands.lock_write import lock_path, portable
    from verl_env.files import write_atomically
    from verl_env.lock.coherence import find_incoherences, package_of, unknown_rules, without_allowed
    from verl_env.lock.lockfile import render_lock

    allowed = tuple(sorted({word for given in args.allow for word in given.split(",") if word}))
    if unknown := unknown_rules(allowed):
        raise UsageError(f"no rule is called `{unknown[0]}`", hint="see the rules in docs/capture.md")
    facts = capture.matrix.facts
    pins = tuple(sized(it, capture.indexes) for it in capture.held)
    if not pins:
        raise LockError("nothing of it can be locked", hint="see what cannot be had: verl-env capture --json")
    cuda = cuda_of_set({it.name: it.version for it in pins}, facts, capture.arch)
    packages = [package_of(it) for it in pins]
    found = find_incoherences(packages, cuda=cuda, python=capture.python, machine=capture.arch, facts=facts)
    refused, _ = without_allowed(found, allowed)
    capture.incoherent = refused
    if refused:
        raise _refusal(refused)
    target = lock_path(args.output, args.name)
    lock = captured_lock(
        args.name,
        pins,
        portable({it.pin.file: it.url for it in capture.held}, target.parent),
        _captured(capture, target),
        Target(
            python=capture.python,
            arch=capture.arch,
            near=capture.near,
            facts=facts,
            allow=allowed,
            build=capture.build,
        ),
    )
    if lock.table.row == args.name and args.name in capture.matrix.entries and lock.table.captured:
        raise UsageError(f"`{args.name}` is a row, and this is another set", hint="give it another --name")
    capture.lock = lock
    if args.dry_run:
        return
    try:
        if capture.patch:
            write_atomically(_patch_path(target), capture.patch.text)
        write_atomically(target, render_lock(lock))
    except OSError as err:
        raise LockError(f"`{target}` cannot be written: {err.strerror}", hint="name another file with -o") from err
    capture.written = target


def _refusal(refused: tuple[Incoherence, ...]) -> LockError:
    details = tuple(f"{it.rule}: {it.what}; write: {it.remedy}" for it in refused)
    return LockError(
        f"what was captured does not hold together ({', '.join(dict.fromkeys(it.rule for it in refused))})",
        details=details,
        hint="mend it there, or set a rule aside: --allow RULE",
    )


def _captured(capture: Capture, target: Path) -> Any:
    from verl_env.lock.captured import Captured

    patch, near = capture.patch, capture.understood.nearest
    return Captured(
        kind=capture.listing.kind,
        python=capture.listing.python or "",
        nearest=near.entry.id if near else "",
        patch=_patch_path(target).name if patch else "",
        patch_sha256=hashlib.sha256(patch.text.encode()).hexdigest() if patch else "",
        patched=patch.files if patch else (),
        git=capture.git,
        built=tuple(it.pin.name for it in capture.held if it.sure == "built"),
        left_out=tuple(it.name for it in capture.unavailable),
    )


def _patch_path(target: Path) -> Path:
    return target.with_name(f"{target.stem}.patch")
