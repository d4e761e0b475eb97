"""Reading what `verl-env report` wrote, also from within an issue that quotes it. Pure."""

from __future__ import annotations

import re

from verl_env.capture.listing import Listed, Listing, merged, without_masked
from verl_env.capture.read_requirements import parse_line

TITLE = "# verl-env report"
_SECTION = re.compile(r"^## (?P<title>\w+)\s*\n```text\n(?P<body>.*?)^```", re.MULTILINE | re.DOTALL)
_GPU = re.compile(r"^  (?:\d+|\?)\s+(?P<name>[^,\[\n]+?)(?:, compute capability (?P<capability>[\d.]+))?(?:,|\s+\[|$)")
_QUOTED = re.compile(r"^> ?", re.MULTILINE)


def is_own_report(text: str) -> bool:
    """Whether a text holds such a report."""
    return re.search(rf"^(?:> ?)?{re.escape(TITLE)}\s*$", text, re.MULTILINE) is not None


def read_own_report(text: str) -> Listing:
    """Take the packages, the environment's Python, and the node."""
    text = _QUOTED.sub("", text.replace("\r\n", "\n"))
    sections = {found["title"]: found["body"] for found in _SECTION.finditer(text)}
    node, environment = sections.get("Node", ""), sections.get("Environment", "")
    unread: list[str] = []
    packages: list[Listed] = []
    for line in sections.get("Packages", "").split():
        packages += parse_line(line, unread) if line != "none" else ()
    kept, masked = without_masked(merged(packages))
    gpus = [found for line in _group(node, "GPUs") if (found := _GPU.match(line)) and found["name"] != "none"]
    return Listing(
        kind="verl-env report",
        packages=kept,
        complete=bool(kept),
        python=_field(environment, "python", r"\d+\.\d+\.\d+"),
        toolkit=_first(r"^  (\d+\.\d+)", "\n".join(_group(node, "Toolkits"))),
        driver=_field(node, "  kernel driver", r"\d{3,4}\.[\d.]+"),
        glibc=_field(node, "  glibc", r"\d+\.\d+"),
        machine=_field(node, "  architecture", r"\w+"),
        gpus=tuple(found["name"].strip() for found in gpus),
        capability=next((found["capability"] for found in gpus if found["capability"]), None),
        notes=(f"the versions of {', '.join(masked)} were masked before this was pasted",) if masked else (),
        unread=tuple(unread),
    )


def _group(node: str, title: str) -> list[str]:
    """Return the lines of one group of the node, which ends with an empty line."""
    found = re.search(rf"^{title}\n(.*?)(?:\n\n|\Z)", node, re.MULTILINE | re.DOTALL)
    return found[1].splitlines() if found else []


def _field(text: str, label: str, value: str) -> str | None:
    """Return the value in a line that begins with a label."""
    return _first(rf"^{re.escape(label)}\s+({value})", text)


def _first(pattern: str, text: str) -> str | None:
    found = re.search(pattern, text, re.MULTILINE)
    return found[1] if found else None
