"""Write docs/findings/ and docs/failures.md from the data that doctor works with.

`python scripts/make_doctor_docs.py` writes them; with `--check` it exits 1 when what is there differs.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "installer"))

from verl_env.doctor.failures import Catalogue, Failure, load_catalogue  # noqa: E402
from verl_env.doctor.kind import Known  # noqa: E402
from verl_env.doctor.known import AREAS, KNOWN  # noqa: E402

_HEAD = "<!-- made by scripts/make_doctor_docs.py: change the data, not this file -->\n"


def pages() -> dict[str, str]:
    """Return every page by its path under docs/."""
    catalogue = load_catalogue()
    by_finding: dict[str, list[str]] = {}
    for name, failure in catalogue.failures.items():
        for finding in failure.findings:
            by_finding.setdefault(finding, []).append(name)
    made = {f"findings/{name}.md": finding_page(name, known, by_finding.get(name, [])) for name, known in KNOWN.items()}
    return {**made, "findings/README.md": findings_index(), "failures.md": failures_page(catalogue)}


def finding_page(name: str, known: Known, failures: list[str]) -> str:
    """Return one finding's page."""
    lines = [
        f"# {name}",
        "",
        f"**{known.title[0].upper()}{known.title[1:]}.** Area `{known.area}`: `verl-env doctor --only {known.area}`.",
        "",
        f"Why it matters: {known.why}.",
        "",
        "What was seen, where, and the one thing to do are in the finding itself.",
    ]
    if known.request:
        lines += ["", "Only an administrator can act. To send, with the evidence in it:", "", f"> {known.request}"]
    if failures:
        links = ", ".join(f"[{it}](../failures.md#{it})" for it in failures)
        lines += ["", f"Failures that this explains: {links}."]
    return "\n".join([_HEAD, *lines, ""])


def findings_index() -> str:
    """Return the list of all findings by area."""
    lines = ["# Findings", "", "What `verl-env detect` and `verl-env doctor` can find. Each id is stable.", ""]
    for area in AREAS:
        lines += [f"## {area}", "", "| id | what |", "|---|---|"]
        lines += [f"| [{name}]({name}.md) | {known.title} |" for name, known in KNOWN.items() if known.area == area]
        lines.append("")
    return "\n".join([_HEAD, *lines])


def failures_page(catalogue: Catalogue) -> str:
    """Return the page of all failure classes."""
    lines = [
        "# Failures that `verl-env doctor --log` knows",
        "",
        "Each class has signatures in `matrices/failures.toml`: add one there, with examples and near-misses.",
        "",
    ]
    for name, failure in catalogue.failures.items():
        lines += failure_section(name, failure, catalogue)
    return "\n".join([_HEAD, *lines])


def failure_section(name: str, failure: Failure, catalogue: Catalogue) -> list[str]:
    """Return one class: cause, remedy, how it shows, what confirms it."""
    signatures = [it for it in catalogue.signatures if it.explains == name]
    lines = [f"## {name}", "", f"{failure.title[0].upper()}{failure.title[1:]}.", ""]
    lines += [f"- **Cause**: {failure.cause}", f"- **Do**: {failure.remedy}"]
    if failure.findings:
        links = ", ".join(f"[{it}](findings/{it}.md)" for it in failure.findings)
        lines.append(f"- **Confirmed on a node by**: {links}")
    if failure.compare:
        lines.append(f"- **Held against the node's**: {failure.compare.fact}")
    lines += ["", "It shows as, for example:", "", "```text"]
    lines += [it.examples[0].splitlines()[-1][:200] for it in signatures]
    return [*lines, "```", "", f"Printed by: {'; '.join(dict.fromkeys(it.source for it in signatures))}.", ""]


def main(words: list[str]) -> int:
    """Write the pages, or compare them."""
    docs = ROOT / "docs"
    made = pages()
    if "--check" in words:
        there = {it.relative_to(docs).as_posix() for it in (docs / "findings").glob("*.md")} | {"failures.md"}
        differ = [name for name, text in made.items() if not _same(docs / name, text)]
        for name in sorted({*differ, *(there - set(made))}):
            print(f"docs/{name} differs from the data: run python scripts/make_doctor_docs.py", file=sys.stderr)
        return 1 if differ or there - set(made) else 0
    for name, text in made.items():
        path = docs / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return 0


def _same(path: Path, text: str) -> bool:
    try:
        return path.read_text(encoding="utf-8") == text
    except OSError:
        return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
