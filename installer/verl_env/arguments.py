"""Arguments shared by commands, and the rule that every option has its VERL_ENV_* variable."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, Any, NoReturn

from verl_env.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

_TRUE = ("1", "true", "yes", "on")
_FALSE = ("0", "false", "no", "off")


class Parser(argparse.ArgumentParser):
    """argparse, with our errors in place of its own exit."""

    def __init__(self, **options: Any) -> None:
        """Turn off abbreviation: a script must not break when an option is added."""
        super().__init__(**{"allow_abbrev": False, **options})

    def error(self, message: str) -> NoReturn:
        """Raise what cli.main renders, so that `--json` also speaks on a usage error."""
        raise UsageError(message, hint=f"see `{self.prog} --help`")


def add_common(parser: argparse.ArgumentParser, *, inherit: bool = False) -> None:
    """Add what every command takes; with `inherit`, on a subcommand, leaving what its command was given."""
    if inherit:
        parser.argument_default = argparse.SUPPRESS
    group = parser.add_argument_group("common options")
    group.add_argument("--json", action="store_true", help="one JSON object on stdout, also on failure")
    group.add_argument("-v", "--verbose", action="count", help="show commands and tracebacks")
    group.add_argument("-q", "--quiet", action="store_true", help="no progress on stderr")
    group.add_argument("--home", metavar="DIR", help="folder of environments, logs and caches")
    group.add_argument("--matrix", metavar="DIR", help="a folder of rows laid over the shipped matrix")
    parser.argument_default = None


def take_environment(parser: argparse.ArgumentParser) -> None:
    """Let `VERL_ENV_<DEST>` stand for each option of this parser and its subparsers; a flag beats its variable."""
    for action in _options(parser):
        variable = variable_of(action)
        value = os.environ.get(variable)
        if value and action.default is not argparse.SUPPRESS:  # else the parser above has it, and a flag may too
            action.default = _converted(action, variable, value)
            action.required = False


def variable_of(action: argparse.Action) -> str:
    """Return the variable of an option: `--compute-capability` is VERL_ENV_COMPUTE_CAPABILITY."""
    longest = max(action.option_strings, key=len)
    return "VERL_ENV_" + longest.lstrip("-").replace("-", "_").upper()


def _options(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:  # noqa: SLF001 - argparse has no public way to walk its actions
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for sub in action.choices.values():
                yield from _options(sub)
        elif action.option_strings and not isinstance(action, argparse._HelpAction):  # noqa: SLF001
            yield action


def _converted(action: argparse.Action, variable: str, value: str) -> Any:
    """Convert a variable's text as the option would have converted its argument."""
    if action.nargs == 0:
        return _switch(action, variable, value)
    values = value.split() if isinstance(action, argparse._AppendAction) else [value]  # noqa: SLF001
    try:
        converted = [action.type(item) if callable(action.type) else item for item in values]
    except (ValueError, argparse.ArgumentTypeError) as err:
        raise UsageError(f"`{variable}={value}`: {err}", hint=f"unset or correct {variable}") from err
    if action.choices is not None and any(item not in action.choices for item in converted):
        known = ", ".join(str(choice) for choice in action.choices)
        raise UsageError(f"`{variable}={value}` is not one of {known}", hint=f"unset or correct {variable}")
    return converted if isinstance(action, argparse._AppendAction) else converted[0]  # noqa: SLF001


def _switch(action: argparse.Action, variable: str, value: str) -> Any:
    """Read a switch's variable: a number for a count, else one of the usual words for yes and no."""
    if isinstance(action, argparse._CountAction) and value.isdecimal():  # noqa: SLF001
        return int(value)
    if value.lower() in _TRUE:
        return action.const if action.const is not None else 1
    if value.lower() in _FALSE:
        return action.default
    raise UsageError(f"`{variable}={value}` is neither yes nor no", hint=f"set {variable} to 1 or 0")
