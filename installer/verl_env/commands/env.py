"""`verl-env env`: the variables an environment needs, for a shell or a file."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from verl_env.environment.exports import applied
from verl_env.environment.receipt import find_environment
from verl_env.environment.shells import FORMATS, render_exports
from verl_env.output import Result
from verl_env.records import to_plain

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add which environment and which form."""
    parser.add_argument("environment", nargs="?", metavar="NAME", help="an environment (default: the current one)")
    parser.add_argument("--format", choices=FORMATS, default="sh", help="how to write them (default: sh)")


def run(args: argparse.Namespace) -> Result:
    """Render the receipt's exports; they name the environment's own folder, never `current`."""
    folder, receipt = find_environment(args.environment)
    values = applied(receipt.exports, os.environ)
    data = {
        "environment": folder.name,
        "exports": [to_plain(export) for export in receipt.exports],
        "values": {export.name: values.get(export.name) for export in receipt.exports},
    }
    return Result(data=data, text=render_exports(receipt.exports, args.format, os.environ).rstrip("\n"))
