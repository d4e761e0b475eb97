"""`verl-env doctor`: what is wrong, why it matters, and the one thing to do."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from verl_env.doctor.known import AREAS, KNOWN
from verl_env.node.arguments import add_node_arguments

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from verl_env.doctor.look import Check
    from verl_env.doctor.situation import Situation, Subject
    from verl_env.node.facts import Finding
    from verl_env.node.host import Host
    from verl_env.output import Result

FINDINGS = 8  # the exit code that says: something was found
_BUDGET = 1.5  # seconds for everything, without --deep
_PATIENCE = 0.8  # seconds for one child: a driver library, a Python, a compiler
_DEEP_BUDGET, _DEEP_PATIENCE = 60.0, 20.0
_NODES_PART = 0.6  # of the budget: what is found by then is told, and the rest is late


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what to look at, and how far."""
    parser.add_argument(
        "environment", nargs="?", metavar="ENVIRONMENT", help="a name, a folder or a Python (default: the current one)"
    )
    parser.add_argument("--log", metavar="FILE", help="explain a failed run's output (- for stdin; gzip is read too)")
    parser.add_argument("--hf-model", metavar="ID|PATH", help="look at one model too: here, whole, permitted")
    parser.add_argument(
        "--ray", nargs="?", const="", metavar="ADDRESS", help="join a Ray cluster, and look at its nodes"
    )
    parser.add_argument(
        "--only", action="append", choices=AREAS, metavar="AREA", help=f"only some areas: {', '.join(AREAS)}"
    )
    parser.add_argument("--skip", action="append", choices=AREAS, metavar="AREA", help="not these areas")
    parser.add_argument("--deep", action="store_true", help="wait longer, and compare the environment's files")
    add_node_arguments(parser)


def run(args: argparse.Namespace) -> Result:
    """Look, and say what is wrong; exit code 0 when nothing is, 8 with findings."""
    if args.log:
        from verl_env.commands.doctor_log import run_log

        return run_log(args)
    from verl_env.commands.doctor_text import render
    from verl_env.output import Result, paint

    situation, findings, areas = examine(args)
    text = render(findings, situation, areas, strong=lambda words: paint(words, "bold", sys.stdout))
    data = {
        "areas": areas,
        "environment": str(situation.subject.folder) if situation.subject else None,
        "findings": [plain(finding) for finding in findings],
    }
    return Result(data=data, text=text, exit_code=FINDINGS if findings else 0)


def examine(args: argparse.Namespace) -> tuple[Situation, list[Finding], list[str]]:
    """Gather what there is to know, and look at every area that is wanted."""
    from verl_env.doctor.look import in_haste, look, timed_out
    from verl_env.doctor.situation import Situation
    from verl_env.matrix.load import read_matrix
    from verl_env.node.facts import Node
    from verl_env.node.host import Host
    from verl_env.node.later import Later

    started = time.monotonic()
    patiently = args.deep or args.ray is not None  # joining a cluster takes seconds anyway
    budget, patience = (_DEEP_BUDGET, _DEEP_PATIENCE) if patiently else (_BUDGET, _PATIENCE)
    host = Host(patience=patience)
    areas = [area for area in AREAS if area in (args.only or AREAS) and area not in (args.skip or ())]
    node, here = Later(lambda: _node(args, host, _NODES_PART * budget)), not _described(args)
    subject = Later(lambda: _subject(args, host, patience))
    matrix, _ = read_matrix(args.matrix)
    late: list[Finding] = []
    try:
        known = node.get(max(0.01, started + 0.75 * budget - time.monotonic()))
    except TimeoutError:
        known = Node()
        late += [timed_out("node")] if {"node", "gpu", "room"} & set(areas) else []  # room has the folders from it
    try:
        environment = subject.get(max(0.01, started + 0.8 * budget - time.monotonic()))
    except TimeoutError:
        environment = None
        late += [timed_out("environment")] if {"environment", "build"} & set(areas) else []
        areas = [area for area in areas if area != "environment"]
    if not patiently:
        known = replace(known, findings=tuple(in_haste(it) for it in known.findings))
    situation = Situation(host=host, node=known, here=here, deep=args.deep, subject=environment, matrix=matrix)
    findings = look(situation, areas, until=started + budget, asked_for=_asked_for(args))
    return situation, [*late, *findings], areas


def _described(args: argparse.Namespace) -> bool:
    from verl_env.node.arguments import is_described

    return is_described(args)


def _node(args: argparse.Namespace, host: Host, limit: float) -> Any:
    """Return the node that is described, or measure this one."""
    from verl_env.matrix.load import load_matrix
    from verl_env.node.arguments import node_from_arguments
    from verl_env.node.probe import probe_node

    if _described(args):
        return node_from_arguments(args, names=load_matrix(args.matrix).gpu_names() if args.gpu else {})
    return probe_node(folders=_folders(), interpreters=False, host=host, limit=limit)


def _folders() -> dict[str, Path]:
    """Return what installations write to."""
    from verl_env import paths
    from verl_env.errors import UsageError

    try:
        return {"environments": paths.environments(), "uv cache": paths.uv_cache()}
    except UsageError:
        return {}


def _subject(args: argparse.Namespace, host: Host, patience: float) -> Subject | None:
    """Return the environment in question; one that is not there is an error of the argument."""
    from verl_env.doctor.situation import find_subject
    from verl_env.errors import UsageError

    try:
        return find_subject(args.environment, host, limit=patience)
    except UsageError:
        if args.environment:
            raise
        return None


def _asked_for(args: argparse.Namespace) -> list[tuple[str, Check]]:
    """Return the checks of the model and of the cluster that were named, each with its area."""
    asked: list[tuple[str, Check]] = []
    if args.hf_model:
        from verl_env.doctor.hub_model import check_model

        asked.append(("huggingface", partial(check_model, model=args.hf_model)))
    if args.ray is not None:
        from verl_env.doctor.check_ray import check_cluster

        asked.append(("ray", partial(check_cluster, address=args.ray or None)))
    return asked


def plain(finding: Finding) -> dict[str, Any]:
    """Return a finding as `data.findings[]` has it: without secrets, with its page, and the request to send if any."""
    from verl_env.doctor.redact import without_secrets
    from verl_env.records import to_plain

    known = KNOWN.get(finding.id)
    evidence = without_secrets(finding.evidence)
    return {
        **to_plain(finding),
        "evidence": evidence,
        "area": known.area if known else "node",
        "page": f"docs/findings/{finding.id}.md",
        "request": known.request.replace("{evidence}", evidence) if known and known.request else None,
    }
