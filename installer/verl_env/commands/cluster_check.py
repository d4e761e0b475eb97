"""`verl-env cluster check`: every node's facts, what differs, and the row that fits them all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from verl_env.cluster.agree import Agreement, Difference, agree, differences
from verl_env.commands.choosing_arguments import add_wishes
from verl_env.commands.cluster_nodes import add_cluster_arguments, cluster_of
from verl_env.commands.cluster_text import plain_agreement, plain_seen, text_of_check
from verl_env.output import Result

if TYPE_CHECKING:
    import argparse

    from verl_env.cluster.facts import Seen

FINDINGS = 8  # as doctor's


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the engine, and what narrows the rows."""
    add_cluster_arguments(parser)
    add_wishes(parser.add_argument_group("choosing"))


def run(args: argparse.Namespace) -> Result:
    """Look at every node; exit code 0 when all answered, nothing differs and one row fits all, else 8."""
    from verl_env.commands.choosing import wishes_of
    from verl_env.matrix.load import load_matrix

    matrix = load_matrix(args.matrix)
    wishes = wishes_of(args, matrix)
    with cluster_of(args) as nodes:
        seen = nodes.look()
        engine = nodes.engine.name
    agreed = agree(seen, matrix, wishes)
    differ = differences(seen)
    data = _data(engine, seen, differ, agreed)
    well = not differ and not agreed.left_out and agreed.fit and not any(it.error or it.sharing for it in seen)
    return Result(data=data, text=text_of_check(seen, differ, agreed), exit_code=0 if well else FINDINGS)


def _data(engine: str, seen: tuple[Seen, ...], differ: tuple[Difference, ...], agreed: Agreement) -> dict[str, Any]:
    """Return everything as scripts read it."""
    return {
        "engine": engine,
        "nodes": [plain_seen(it) for it in seen],
        "differences": [
            {"what": it.what, "values": [{"value": value, "nodes": list(names)} for value, names in it.values]}
            for it in differ
        ],
        **plain_agreement(agreed),
    }
