"""`verl-env check`: whether a lockfile, a list of packages or an environment holds together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from verl_env.errors import UsageError
from verl_env.output import Result

if TYPE_CHECKING:
    import argparse

    from verl_env.capture.listing import Listing
    from verl_env.lock.coherence import Incoherence

EXIT_INCOHERENT = 8


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what to look at, and which rules to set aside."""
    parser.add_argument(
        "subject",
        metavar="FILE|ENV",
        help="a lockfile (PEP 751, uv.lock), requirements, pip freeze, a report, an environment or a row",
    )
    parser.add_argument(
        "--allow", action="append", default=[], metavar="RULE", help="set this rule aside (again for more)"
    )
    parser.add_argument("--python", metavar="X.Y", help="the Python it is for, where the list does not say")


def run(args: argparse.Namespace) -> Result:
    """Read it, hold it against every rule, say what was found: exit code 8 when something is refused."""
    from verl_env.capture.subject import read_subject
    from verl_env.environment.preflight import minor_of
    from verl_env.lock.coherence import find_incoherences, unknown_rules, without_allowed
    from verl_env.matrix.load import load_matrix

    allowed = {word for given in args.allow for word in given.split(",") if word}
    if unknown := unknown_rules(allowed):
        raise UsageError(f"no rule is called `{unknown[0]}`", hint="see the rules in docs/capture.md")
    matrix = load_matrix(args.matrix)
    listing, _ = read_subject(args.subject, matrix)
    found = find_incoherences(
        tuple(it.package for it in listing.packages),
        cuda=listing.cuda if listing.kind in ("row", "PEP 751 lockfile") else None,
        python=minor_of(args.python) if args.python else listing.minor,
        machine=listing.machine or "x86_64",
        facts=matrix.facts,
    )
    refused, set_aside = without_allowed(found, {*allowed, *listing.allow})
    return Result(
        data=_data(listing, refused, set_aside),
        text=_text(listing, refused, set_aside),
        exit_code=EXIT_INCOHERENT if refused else 0,
    )


def _data(listing: Listing, refused: tuple[Incoherence, ...], allowed: tuple[Incoherence, ...]) -> dict[str, Any]:
    from verl_env.records import to_plain

    return {
        "kind": listing.kind,
        "packages": len(listing.packages),
        "pinned": sum(it.version is not None for it in listing.packages),
        "python": listing.python,
        "row": listing.row,
        "findings": [to_plain(it) for it in refused],
        "allowed": [to_plain(it) for it in allowed],
        "notes": [*listing.notes, *_notes(listing)],
        "unread": list(listing.unread),
    }


def _notes(listing: Listing) -> tuple[str, ...]:
    """Say what the rules could not look at."""
    open_ones = [it for it in listing.packages if not it.version and not (it.vcs and it.vcs.commit)]
    notes = []
    if open_ones:
        names = ", ".join(it.name for it in open_ones[:5]) + (" …" if len(open_ones) > 5 else "")  # noqa: PLR2004
        notes.append(f"{len(open_ones)} of {len(listing.packages)} have no exact version, and were not judged: {names}")
    if listing.unread:
        notes.append(f"{len(listing.unread)} lines were not understood: {listing.unread[0]}")
    return tuple(notes)


def _text(listing: Listing, refused: tuple[Incoherence, ...], allowed: tuple[Incoherence, ...]) -> str:
    lines = [
        f"{listing.kind}: {len(listing.packages)} packages" + (f", Python {listing.python}" if listing.python else "")
    ]
    lines += [f"note: {it}" for it in (*listing.notes, *_notes(listing))]
    for it in refused:
        lines += ["", f"{it.rule}: {it.what}", *(f"  {line}" for line in it.evidence)]
        lines += [f"  why:   {it.why}", f"  write: {it.remedy}"]
    lines += [f"allowed {it.rule}: {it.what}" for it in allowed]
    lines.append("" if refused else "no rule speaks against it")
    if refused:
        count = len(refused)
        lines.append(f"{count} finding{'s' if count > 1 else ''}; set one aside with --allow RULE")
    return "\n".join(lines)
