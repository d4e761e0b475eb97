"""Exports as a script for fish, that can be read twice and undone. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verl_env.environment.exports import DEFAULT, PREPEND, UNSET
from verl_env.environment.library_path import NAME
from verl_env.environment.posix_shell import sealing_functions

if TYPE_CHECKING:
    from verl_env.environment.exports import Export

_UNDO_FIRST = """\
if functions -q _verl_env_undo
    _verl_env_undo
else if functions -q deactivate
    deactivate nondestructive
end
"""


def render_fish(exports: tuple[Export, ...], folder: str, owned: tuple[str, ...]) -> str:
    """Return the script, with the words and rules of `posix_shell`; sh judges the folders of the list of libraries."""
    names = tuple(dict.fromkeys((*(export.name for export in exports), *([NAME] if owned else []))))
    lines = [_UNDO_FIRST, *(_save(name) for name in names)]
    if owned:
        script = f'{sealing_functions(folder, owned)}_verl_env_seal "$1"\nprintf %s "${{_verl_env_kept#:}}"'
        lines.append(f'set -l _verl_env_kept (sh -c {quoted(script)} sh "${NAME}" | string collect)\n')
        kept = f"set -gx {NAME} $_verl_env_kept"
        lines.append(f'if test -n "$_verl_env_kept"\n    {kept}\nelse\n    set -e {NAME}\nend\n')
    lines += [_change(export) for export in exports]
    return "".join([*lines, "set -e _verl_env_kept _verl_env_rest _verl_env_part\n", _deactivate(names)])


def quoted(value: str) -> str:
    r"""Quote for fish: inside single quotes only `\` and `'` are special."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _save(name: str) -> str:
    return f"set -e _VERL_ENV_OLD_{name}\nif set -q {name}\n    set -g _VERL_ENV_OLD_{name} ${name}\nend\n"


def _change(export: Export) -> str:
    """Change one variable; fish has PATH, and what is named like it, as a list that is text between double quotes."""
    name, value = export.name, quoted(export.value)
    if export.how == UNSET:
        return f"set -e {name}\n"
    if export.how == PREPEND:
        return (
            f'set -l _verl_env_rest "${name}"\nset -gx {name} {value}\n'
            "for _verl_env_part in (string split : -- $_verl_env_rest)\n"
            f'    if test -n "$_verl_env_part"; and test "$_verl_env_part" != {value}\n'
            f'        set {name} "${name}:$_verl_env_part"\n    end\nend\n'
        )
    if export.how == DEFAULT:
        return f'if test -z "${name}"\n    set -gx {name} {value}\nend\n'
    return f"set -gx {name} {value}\n"


def _deactivate(names: tuple[str, ...]) -> str:
    """Write what gives each variable its value back, or none."""
    lines = ["function deactivate -d 'Undo what verl-env set'\n    _verl_env_undo\nend\nfunction _verl_env_undo\n"]
    for name in names:
        old = f"_VERL_ENV_OLD_{name}"
        lines.append(f"    set -e {name}\n    if set -q {old}\n        set -gx {name} ${old}\n    end\n")
        lines.append(f"    set -e {old}\n")
    lines.append("    functions -e deactivate _verl_env_undo\nend\n")
    return "".join(lines)
