"""`verl-env cluster check`: every node's facts, what differs, and the row that fits them all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from verl_env.cluster.agree import Agreement, Difference, agree, differences
from verl_env.cluster.links import Link, line_of
from verl_env.commands.choosing_arguments import add_wishes
from verl_env.commands.cluster_nodes import add_cluster_arguments, cluster_of
from verl_env.commands.cluster_text import plain_agreement, plain_seen, some, text_of_check
from verl_env.output import Result
from verl_env.records import to_plain

if TYPE_CHECKING:
    import argparse

    from verl_env.cluster.facts import Seen

FINDINGS = 8  # as doctor's


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the engine, and what narrows the rows."""
    add_cluster_arguments(parser)
    parser.add_argument(
        "--nccl",
        action="store_true",
        help="all-reduce between pairs of nodes under their environment: transport, interface, bandwidth (NCCL; gloo "
        "where there is no GPU)",
    )
    add_wishes(parser.add_argument_group("choosing"))


def run(args: argparse.Namespace) -> Result:
    """Look at every node; exit code 0 when all answered, nothing differs and one row fits all, else 8."""
    from verl_env.commands.choosing import wishes_of
    from verl_env.matrix.load import load_matrix

    matrix = load_matrix(args.matrix)
    wishes = wishes_of(args, matrix)
    with cluster_of(args) as nodes:
        seen = nodes.look()
        links = nodes.links([it.member for it in seen if it.current]) if args.nccl else ()
        engine = nodes.engine.name
    agreed = agree(seen, matrix, wishes)
    differ = differences(seen)
    data = _data(engine, seen, differ, agreed) | {"links": [to_plain(it) for it in links]}
    well = not differ and not agreed.left_out and agreed.fit and not any(it.error or it.sharing for it in seen)
    well = well and not any(it.error for it in links)
    text = "\n".join([text_of_check(seen, differ, agreed), *_link_lines(links, seen, asked=args.nccl)])
    return Result(data=data, text=text, exit_code=0 if well else FINDINGS)


def _link_lines(links: tuple[Link, ...], seen: tuple[Seen, ...], *, asked: bool) -> list[str]:
    """Say each link, and who could not take part."""
    without = [it.name for it in seen if not it.current]
    alone = [f"no environment is in use on {some(without)}: nothing to reduce with there"] if asked and without else []
    return [*(line_of(it) for it in links), *alone]


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
