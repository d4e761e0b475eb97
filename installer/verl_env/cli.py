"""The front: find the command, parse its arguments, run it, print what it returned. Only `main` catches."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, NoReturn

from verl_env import __version__

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from verl_env.output import Result

# name -> what `verl-env --help` says of it. A command's module is imported only when it runs.
COMMANDS = {
    "detect": "show what this node is: driver, GPUs, glibc, Pythons, room",
    "matrix": "list, show and explain the validated rows; keep them",
    "lock": "write the lockfile of the row that fits",
    "check": "whether a lockfile, a list or an environment holds together",
    "capture": "a working environment, a report or a list becomes a lock",
    "diff": "what differs between two environments, locks, rows or lists",
    "install": "build, prove and switch to an environment",
    "build": "compile a wheel that nobody publishes, once, for a row; or adopt one",
    "smoke": "run the smoke imports of an environment again",
    "env": "print the variables an environment needs",
    "run": "run a program inside an environment",
    "doctor": "say what is wrong here or in a log, why, and the one thing to do",
    "report": "write one file to paste into an issue: node, environment, findings; no secrets, no names",
    "list": "list the environments of this node",
    "use": "make an environment that stands here the one in use",
    "rollback": "go back to the environment that was in use before",
    "verify": "hold an environment against the manifest of its files",
    "repair": "build a damaged environment again, and switch to it",
    "bundle": "everything of an environment as one file, for a node with no network",
    "cluster": "many nodes: what they are, and one environment on all of them",
    "prune": "remove environments that are no longer needed",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the process's exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words in (["--version"], ["-V"]):  # felt on every shell prompt that shows it: nothing else is imported
        print(f"verl-env {__version__}")
        return 0
    import signal

    from verl_env.errors import Interrupted, VerlEnvError

    signal.signal(signal.SIGTERM, _interrupt)
    command = next((word for word in words if word in COMMANDS), "")
    as_json = _is_asked(words, {"--json"}, "VERL_ENV_JSON")
    verbose = _is_asked(words, {"-v", "-vv", "--verbose"}, "VERL_ENV_VERBOSE")
    try:
        return _finish(command, _dispatch(command, words), as_json=as_json)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except VerlEnvError as err:
        return _fail(command, err, as_json=as_json, verbose=verbose)
    except Exception as err:  # noqa: BLE001 - a bug of ours: its traceback is what a report needs
        return _bug(command, err, as_json=as_json)
    except KeyboardInterrupt:
        return _fail(command, Interrupted("interrupted; the environment in use is as it was"), as_json=as_json)


def _is_asked(words: list[str], options: set[str], variable: str) -> bool:
    """Whether an option of ours is given or its variable set: errors of the parser itself are shown so too."""
    own = words[: words.index("--")] if "--" in words else words
    return bool(options & set(own)) or os.environ.get(variable, "0").lower() not in ("", "0", "no", "off", "false")


def _finish(command: str, result: Result | int, *, as_json: bool) -> int:
    """Print what a command returned, once."""
    from verl_env import output

    if isinstance(result, int):
        return result
    if as_json:
        print(output.envelope(command, result))
    elif result.text:
        print(result.text)
    sys.stdout.flush()
    return result.exit_code


def _interrupt(_signal: int, _frame: object) -> NoReturn:
    """End on SIGTERM as on Ctrl-C: children first, then every `finally`."""
    raise KeyboardInterrupt


def _fail(command: str, err: Exception, *, as_json: bool, verbose: bool = False) -> int:
    """Print an error in the form that was asked for, and return its exit code."""
    from verl_env import output
    from verl_env.errors import VerlEnvError

    if not isinstance(err, VerlEnvError):  # pragma: no cover - callers pass nothing else
        raise err
    if err.said:
        from verl_env.commands.explained_failure import explain_failure

        explain_failure(err)
    if as_json:
        data = err.data
        print(output.envelope(command, output.Result(data=data, exit_code=err.exit_code), (err,)))
    if verbose:
        import traceback

        traceback.print_exception(err)
    output.show_error(err)
    return err.exit_code


def _bug(command: str, err: Exception, *, as_json: bool) -> int:
    """Print the traceback of an error that nobody foresaw; exit 70 (sysexits.h, EX_SOFTWARE)."""
    import traceback

    from verl_env.errors import VerlEnvError

    traceback.print_exception(err)
    wrapped = VerlEnvError(f"a bug: {type(err).__name__}: {err}", hint="report it with the traceback above")
    return _fail(command, wrapped, as_json=as_json)


def _dispatch(command: str, words: list[str]) -> Result | int:
    """Build the parser with the one command that is asked for, and run it."""
    from verl_env import arguments, output, process
    from verl_env.environment import again

    if command == "install" and (known := again.answer(words)):
        return known
    parser = arguments.Parser(
        prog="verl-env",
        description="Which verl environment works on this node, and how to get exactly that one.",
        epilog="Exit codes, JSON and variables: README.md. Each option has a variable: --driver is VERL_ENV_DRIVER.",
    )
    parser.add_argument("-V", "--version", action="version", version=f"verl-env {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands", required=True)
    run = None
    for name, summary in COMMANDS.items():
        sub = commands.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")
        if name == command:
            module = import_module(f"verl_env.commands.{name}")
            arguments.add_common(sub)
            module.add_arguments(sub)
            arguments.take_environment(sub)
            run = module.run
    args = parser.parse_args(words)
    if run is None:  # argparse has already refused an unknown command
        _unreachable()
    process.verbose = bool(args.verbose)
    output.quiet = args.quiet
    if args.home is not None:
        os.environ["VERL_ENV_HOME"] = os.path.abspath(os.path.expanduser(args.home))
    result: Result | int = run(args)
    if command == "install" and not isinstance(result, int):
        again.remember(words, result)
    return result


def _unreachable() -> NoReturn:
    raise AssertionError("a command ran that was not parsed")


def parser_of(command: str) -> argparse.ArgumentParser:
    """Return one command's parser, for tests and the reference in README."""
    from verl_env import arguments

    parser = arguments.Parser(prog=f"verl-env {command}", description=COMMANDS[command])
    arguments.add_common(parser)
    import_module(f"verl_env.commands.{command}").add_arguments(parser)
    return parser
