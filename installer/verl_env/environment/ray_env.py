"""Exports as a Ray runtime environment: workers start with the environment's Python and variables. Pure."""

from __future__ import annotations

import json
import re
import shlex
from typing import TYPE_CHECKING

from verl_env.environment.exports import EMPTY_IS_UNSET, PREPEND, UNSET

if TYPE_CHECKING:
    from collections.abc import Mapping

    from verl_env.environment.exports import Export

# Ray puts variables in the place of `$NAME` and `${NAME}` (ray/_private/utils.py, update_envs), and knows no escape.
_EXPANDED = re.compile(r"\$(\w|\{)")


def render_runtime_env(folder: str, exports: tuple[Export, ...], values: Mapping[str, str]) -> str:
    """Return JSON for `ray job submit --runtime-env-json` and `ray.init(runtime_env=…)`.

    Lists are put in front of each worker's own. A value that Ray would change travels in the command that starts
    Python, which bash reads.
    """
    variables: dict[str, str] = {}
    guarded: dict[str, str] = {}
    for export in exports:
        if export.how == UNSET:
            variables |= {export.name: ""} if export.name in EMPTY_IS_UNSET else {}
        elif export.how == PREPEND:
            front = variables.get(export.name, f"${{{export.name}}}")
            variables[export.name] = f"{export.value}:{front}"
        elif _EXPANDED.search(values[export.name]):
            guarded[export.name] = values[export.name]
        else:
            variables[export.name] = values[export.name]
    variables |= {name: value for name, value in values.items() if name not in variables and name not in guarded}
    words = ["env", *(f"{name}={value}" for name, value in guarded.items())] if guarded else []
    plain = {"env_vars": variables, "py_executable": shlex.join([*words, f"{folder}/bin/python"])}
    return json.dumps(plain, indent=2, ensure_ascii=False) + "\n"
