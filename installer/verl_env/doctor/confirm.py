"""What this node's facts make of an explanation: they confirm it, speak against it, or say nothing. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from packaging.version import InvalidVersion, Version

from verl_env.doctor.explain import less_sure, surer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from verl_env.doctor.explain import Explanation
    from verl_env.doctor.failures import Catalogue, Compare
    from verl_env.node.facts import Finding, Node


def confirm(
    explanations: tuple[Explanation, ...], catalogue: Catalogue, node: Node, findings: Iterable[Finding]
) -> tuple[Explanation, ...]:
    """Return the explanations, in their order, each with what the node says of it."""
    by_id = {finding.id: finding for finding in findings}
    return tuple(_confirmed(one, catalogue, node, by_id) for one in explanations)


def _confirmed(one: Explanation, catalogue: Catalogue, node: Node, by_id: dict[str, Finding]) -> Explanation:
    """Hold one explanation against the node."""
    failure = catalogue.failures[one.name]
    found = next((by_id[name] for name in failure.findings if name in by_id), None)
    if found:
        return surer(one, f"confirmed here ({found.id}): {found.evidence}")
    if failure.compare is None:
        return one
    return _compared(one, failure.compare, node)


def _compared(one: Explanation, compare: Compare, node: Node) -> Explanation:
    """Compare one fact of the node with the version that the log names, or with the value that confirms."""
    here = fact_of(node, compare.fact)
    if here is None:
        return one
    wanted = compare.equals or one.groups.get(compare.below)
    if wanted is None:
        return one
    try:
        fits = here == wanted if compare.equals else Version(here) < Version(wanted)
    except InvalidVersion:
        return one
    if fits:
        return surer(one, f"confirmed here: {compare.fact} is {here}{'' if compare.equals else f', below {wanted}'}")
    return less_sure(one, f"this node's {compare.fact} is {here}: did the log come from another one?")


def fact_of(node: Node, name: str) -> str | None:
    """Return a fact by the name that failures.toml uses; None when it is not known."""
    if name == "glibc":
        return node.glibc.value if node.glibc else None
    if name == "driver_api":
        return node.api_version
    if name == "machine":
        return node.machine.value if node.machine else None
    if name == "wsl":
        return "yes" if node.wsl else ("no" if node.kernel else None)
    return None
