"""`verl-env run -- CMD`: a program inside an environment, in place of this process."""

from __future__ import annotations

import argparse
import os
import shutil

from verl_env.commands.env import add_inherit_argument, show_library_path
from verl_env.environment.activation import activation_of, inheriting, sealed
from verl_env.environment.receipt import find_environment
from verl_env.errors import UsageError
from verl_env.process import clean_environ


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add which environment, and the program with its arguments."""
    parser.add_argument("-e", "--environment", metavar="NAME", help="an environment (default: the current one)")
    add_inherit_argument(parser)
    parser.add_argument("program", nargs=argparse.REMAINDER, metavar="-- CMD", help="the program and its arguments")


def run(args: argparse.Namespace) -> int:
    """Replace this process, so that signals and the exit code are the program's own."""
    words = args.program[1:] if args.program[:1] == ["--"] else args.program
    if not words:
        raise UsageError("no program was named", hint="verl-env run -- python train.py")
    folder, receipt = find_environment(args.environment)
    activation = activation_of(folder, receipt.exports, os.environ if args.inherit else clean_environ())
    if args.inherit:
        activation = inheriting(activation)
    if args.verbose:
        show_library_path(activation)
    environ = sealed(activation)
    program = shutil.which(words[0], path=environ["PATH"])
    if program is None:
        raise UsageError(f"no program `{words[0]}` is in the environment or on PATH", hint="check its name")
    try:
        os.execve(program, words, environ)  # noqa: S606 - running the user's program is what this is for
    except OSError as err:
        raise UsageError(f"`{program}` cannot be run: {err.strerror}", hint="check that it is a program") from err
