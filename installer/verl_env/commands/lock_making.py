"""What `lock` and `lock --format` share: from arguments to a lock that holds together."""

from __future__ import annotations

import difflib
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from verl_env import output
from verl_env.builds.use import with_wheelhouse
from verl_env.commands.built_wheels import with_built_wheels
from verl_env.commands.choosing import Reach, Situation, choose_reachable, read_situation
from verl_env.errors import LockError, ResolveError, UsageError
from verl_env.lock.build import Change, build_lock
from verl_env.lock.coherence import RULES, find_incoherences, package_of, unknown_rules, without_allowed
from verl_env.lock.declared import RULE, broken_by, row_extras
from verl_env.lock.extend import Wanted, extend
from verl_env.lock.lockfile import Lock
from verl_env.lock.requirements_file import read_requirements
from verl_env.lock.table import Asked, AskedFile, Editable
from verl_env.lock.wishes import Unmet, Wish, parse_wish

if TYPE_CHECKING:
    import argparse

    from verl_env.matrix.facts import Facts
    from verl_env.matrix.matrix import Entry
    from verl_env.matrix.pins import Pins


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A lock without URLs, what it was made from, and what the user should know of it."""

    lock: Lock
    situation: Situation
    notes: tuple[str, ...] = ()


def make_lock(args: argparse.Namespace, folder: Path) -> Made:
    """Choose a row, add what was asked for, and refuse what does not hold together; `folder` will hold the lock."""
    asked, wanted = read_asked(args, folder)
    situation = read_situation(args)
    fit, base, _ = choose_reachable(situation, Reach(), for_install=False)
    entry = fit.entry
    pins = _resolved(entry, base, asked, wanted, situation)
    editable = _checkout(args.editable, folder, entry, pins)
    allowed = {*args.allow, *(it.rule for it in entry.row.allow)}
    broken = broken_by(editable, pins.pins, entry.row, base.header.python, base.header.arch) if editable else ()
    if broken and RULE not in allowed:
        raise _undeclared(broken, editable)
    change = None
    used = {RULE} & set(args.allow) if broken else set()
    if asked != Asked() or editable:
        change = Change(base=base, asked=asked, editable=editable, allow=tuple(sorted(used)))
    lock = build_lock(entry, pins, situation.matrix.facts, change=change)
    used |= refuse_incoherent(lock, situation.matrix.facts, allowed) & set(args.allow)
    if used and used != set(lock.table.allow):
        change = Change(base=base, asked=asked, editable=editable, allow=tuple(sorted(used)))
        lock = build_lock(entry, pins, situation.matrix.facts, change=change)
    behind = _behind(base, pins, asked, wanted, situation)
    extended = with_built_wheels(lock, situation, args, unasked=False)
    situation = replace(situation, indexes=with_wheelhouse(extended.lock, situation.indexes))
    notes = (*fit.notes, *_notes(lock), *behind, *extended.notes)
    return Made(lock=extended.lock, situation=situation, notes=notes)


def read_asked(args: argparse.Namespace, folder: Path) -> tuple[Asked, Wanted]:
    """Read what goes beyond the row; raises UsageError for what cannot be read, and for rules that do not exist."""
    if unknown := unknown_rules(set(args.allow) - {RULE}):
        close = difflib.get_close_matches(unknown[0], [*RULES, RULE], n=1)
        hint = f"did you mean `{close[0]}`?" if close else f"rules: {', '.join([*RULES, RULE])}"
        raise UsageError(f"no rule is called `{unknown[0]}`", hint=hint)
    wishes = tuple(dict.fromkeys(parse_wish(it, "--with") for it in args.wishes))
    upgrade = tuple(dict.fromkeys(parse_wish(it, "--upgrade-package") for it in args.upgrade_package))
    files: list[AskedFile] = []
    from_files: list[Wish] = []
    for name in args.requirements:
        read = read_requirements(Path(name))
        from_files += read
        files.append(AskedFile(name=relative_name(Path(name), folder), lines=tuple(it.line for it in read)))
    if args.exclude_newer and not (wishes or from_files or upgrade or args.resolve):
        raise UsageError(
            "--exclude-newer is for what is resolved, and nothing is",
            hint="add --with, -r, --upgrade-package or --resolve",
        )
    asked = Asked(
        wishes=tuple(it.text for it in wishes),
        files=tuple(files),
        upgrade=tuple(it.text for it in upgrade),
        resolve=args.resolve,
        exclude_newer=args.exclude_newer,
    )
    return asked, Wanted(wishes=(*wishes, *from_files), upgrade=upgrade, exclude_newer=args.exclude_newer)


def relative_name(path: Path, folder: Path) -> str:
    """Return a file's name as seen from the lock's folder; only its own where they share no folder but the root."""
    one, two = path.resolve(), folder.resolve()
    shared = os.path.commonpath([one, two])
    return Path(os.path.relpath(one, two)).as_posix() if shared != os.sep or two == Path(os.sep) else one.name


def _resolved(entry: Entry, base: Pins, asked: Asked, wanted: Wanted, situation: Situation) -> Pins:
    """Return the row's pins, or what uv makes of them and the wishes."""
    indexes, facts = situation.indexes, situation.matrix.facts
    if asked.resolve:
        from verl_env.lock.afresh import resolve_afresh

        output.note(f"resolving {entry.id} afresh (cp{base.header.python}, {base.header.arch})")
        return resolve_afresh(entry, base, wanted, indexes, facts)
    if wanted.wishes or wanted.upgrade:
        return extend(entry, base, wanted, indexes, facts)
    return base


def _behind(base: Pins, pins: Pins, asked: Asked, wanted: Wanted, situation: Situation) -> tuple[str, ...]:
    """Say which wishes got an older release than there is."""
    if asked.resolve or pins == base or not wanted.wishes:
        return ()
    from verl_env.lock.behind import held_back

    return held_back(wanted.wishes, base, pins, situation.indexes, wanted.exclude_newer)


def _checkout(given: str | None, folder: Path, entry: Entry, pins: Pins) -> Editable | None:
    """Read the checkout that goes over the pins; it must be of a package that is pinned."""
    if given is None:
        return None
    from verl_env.lock.checkout import read_checkout

    editable = read_checkout(given, folder, row_extras(entry.row))
    if editable.name not in {pin.name for pin in pins.pins}:
        raise UsageError(
            f"`{given}` is `{editable.name}`, which row {entry.id} does not have", hint="name a checkout of verl"
        )
    return editable


def _undeclared(broken: tuple[Unmet, ...], editable: Editable | None) -> ResolveError:
    """Name every declared dependency that the pins do not meet."""
    missing = " ".join(f"--with '{it.wish.text}'" for it in broken if it.found is None)
    others = f"choose a row with other pins, change what the checkout declares, or --allow {RULE}"
    name = editable.name if editable else ""
    return ResolveError(
        f"{len(broken)} dependencies of the checkout of {name} are not met by the pins",
        details=tuple(str(it) for it in broken),
        hint=f"add {missing}" if missing and all(it.found is None for it in broken) else others,
    )


def refuse_incoherent(lock: Lock, facts: Facts, allowed: set[str]) -> set[str]:
    """Raise LockError for each rule that is broken and not allowed; return the rules that are broken and allowed."""
    table = lock.table
    found = find_incoherences(
        tuple(package_of(pin) for pin in lock.pins),
        cuda=table.cuda,
        python=table.python,
        machine=table.arch,
        facts=facts,
    )
    refused, permitted = without_allowed(found, allowed)
    if not refused:
        return {it.rule for it in permitted}
    details = tuple(line for it in refused for line in (f"[{it.rule}] {it.what}: {it.why}", f"  {it.remedy}"))
    allow = " ".join(f"--allow {rule}" for rule in dict.fromkeys(it.rule for it in refused))
    raise LockError(
        f"the packages do not hold together: {', '.join(dict.fromkeys(it.rule for it in refused))}",
        details=details,
        hint=f"write what each line says, or set the rule aside in the lock: {allow}",
    )


def _notes(lock: Lock) -> tuple[str, ...]:
    """Say what a user of this lock should know, and the row's proof does not cover."""
    table, notes = lock.table, []
    if table.added:
        versions = {pin.name: pin.version for pin in lock.pins}
        notes.append("added to the row: " + ", ".join(f"{name} {versions[name]}" for name in table.added))
    if table.moved:
        versions = {pin.name: pin.version for pin in lock.pins}
        moves = ", ".join(f"{name} {old} -> {versions[name]}" for name, old in table.moved.items())
        notes.append(f"moved from the row's pins: {moves}")
    if table.unproven:
        notes.append(f"unproven: {table.unproven}")
    if table.editable:
        notes += _editable_notes(table.editable)
    return tuple(notes)


def _editable_notes(editable: Editable) -> list[str]:
    """Say what of a checkout nobody else can reproduce."""
    name = editable.name
    if editable.commit is None:
        return [f"{name} is not in git: the lock cannot say which {name} it is"]
    notes = [f"{name} is the checkout `{editable.path}` at {editable.commit[:12]}"]
    notes += [f"{name} has changes that no commit holds"] if editable.dirty else []
    notes += [] if editable.pushed else [f"{name}: no remote branch is known to have that commit"]
    notes += [f"{name}: what it declares cannot be read statically, and was not checked"] * (
        editable.dependencies is None
    )
    return notes
