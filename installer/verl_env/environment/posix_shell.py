"""Exports as a script for sh, bash, zsh, ksh and busybox, that can be read twice and undone. Pure.

Each variable's value is kept before it is changed, and `deactivate` gives it back; reading the script again undoes it
first. Nothing but what every shell of the family has is used: zsh splits no words, dash has no lists and no `local`.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from verl_env.environment.exports import DEFAULT, PREPEND, UNSET
from verl_env.environment.library_path import DRIVER, NAME, PLUGINS

if TYPE_CHECKING:
    from verl_env.environment.exports import Export

# Ours first, which somebody's virtual environment may have hidden; else theirs, as they do among each other.
_UNDO_FIRST = """\
if [ "$(command -v _verl_env_undo)" = _verl_env_undo ]; then _verl_env_undo
elif [ "$(command -v deactivate)" = deactivate ]; then deactivate nondestructive; fi
"""
# A list without one of its parts, and without empty ones, which mean the working folder; each part behind a colon.
_WITHOUT = """\
_verl_env_without() {
    _verl_env_kept= _verl_env_rest="${1}:"
    while [ -n "$_verl_env_rest" ]; do
        _verl_env_part="${_verl_env_rest%%:*}" _verl_env_rest="${_verl_env_rest#*:}"
        if [ -n "$_verl_env_part" ] && [ "$_verl_env_part" != "$2" ]; then
            _verl_env_kept="$_verl_env_kept:$_verl_env_part"
        fi
    done
}
"""


def render_posix(exports: tuple[Export, ...], folder: str, owned: tuple[str, ...]) -> str:
    """Return the script; `folder` is the environment's, `owned` the libraries that nothing may shadow."""
    names = tuple(dict.fromkeys(export.name for export in exports))
    saved = tuple(dict.fromkeys((*names, *([NAME] if owned else []))))
    lines = [_UNDO_FIRST, *(_save(name) for name in saved)]
    if any(export.how == PREPEND for export in exports):
        lines.append(_WITHOUT)
    if owned:
        lines.append(sealing_functions(folder, owned))
        kept = f'export {NAME}="${{_verl_env_kept#:}}"'
        lines.append(f'_verl_env_seal "${{{NAME}-}}"\n')
        lines.append(f'if [ -n "$_verl_env_kept" ]; then {kept}; else unset {NAME}; fi\n')
    lines += [_change(export) for export in exports]
    return "".join([*lines, _deactivate(saved, sealed=bool(owned))])


def sealing_functions(folder: str, owned: tuple[str, ...]) -> str:
    """Write `_verl_env_seal`: what `library_path` keeps of a list, each part behind a colon, as `_verl_env_kept`."""
    ours = "|".join(f"{quoted(name)}*" for name in owned)
    needed = "|".join([*DRIVER, *(f"{name}*" for name in PLUGINS)])
    return f"""\
_verl_env_shadows() {{
    case "$1/" in
        /|[!/]*|*/stubs/|*/stubs//) return 0 ;;
        {quoted(folder)}/*) return 1 ;;
    esac
    if [ -d "$1/../conda-meta" ]; then return 0; fi
    if [ -n "${{ZSH_VERSION-}}" ]; then emulate -L sh; fi
    _verl_env_found=
    for _verl_env_file in "$1"/*.so*; do
        case "${{_verl_env_file##*/}}" in
            {ours}) _verl_env_found="shadow$_verl_env_found" ;;
            {needed}) _verl_env_found="${{_verl_env_found}} needed" ;;
        esac
    done
    case "$1" in
        /lib|/lib64|/lib/*-linux-gnu|/usr/lib|/usr/lib64|/usr/lib/*-linux-gnu)
            _verl_env_found="${{_verl_env_found%% *}}" ;;
    esac
    case "$_verl_env_found" in
        *needed*) return 1 ;;
        shadow*) return 0 ;;
    esac
    return 1
}}
_verl_env_seal() {{
    _verl_env_kept= _verl_env_rest="${{1}}:"
    while [ -n "$_verl_env_rest" ]; do
        _verl_env_part="${{_verl_env_rest%%:*}}" _verl_env_rest="${{_verl_env_rest#*:}}"
        if ! _verl_env_shadows "$_verl_env_part"; then _verl_env_kept="$_verl_env_kept:$_verl_env_part"; fi
    done
}}
"""


def quoted(value: str) -> str:
    """Quote for sh and its heirs; zsh takes an unquoted `=word` for the path of a command, and shlex leaves it so."""
    return "'" + value.replace("'", "'\"'\"'") + "'" if "=" in value else shlex.quote(value)


def _save(name: str) -> str:
    return f"_VERL_ENV_HAD_{name}=${{{name}+x}} _VERL_ENV_OLD_{name}=${{{name}-}}\n"


def _change(export: Export) -> str:
    """Change one variable."""
    name, value = export.name, quoted(export.value)
    if export.how == UNSET:
        return f"unset {name}\n"
    if export.how == PREPEND:
        return f'_verl_env_without "${{{name}-}}" {value}\nexport {name}={value}"$_verl_env_kept"\n'
    if export.how == DEFAULT:
        return f'if [ -z "${{{name}-}}" ]; then export {name}={value}; fi\n'
    return f"export {name}={value}\n"


def _deactivate(names: tuple[str, ...], *, sealed: bool) -> str:
    """Write what gives each variable its value back, or none."""
    lines = ["deactivate() { _verl_env_undo; }\n_verl_env_undo() {\n"]
    for name in names:
        old = f'"$_VERL_ENV_OLD_{name}"'
        lines.append(f'    if [ -n "$_VERL_ENV_HAD_{name}" ]; then export {name}={old}; else unset {name}; fi\n')
        lines.append(f"    unset _VERL_ENV_HAD_{name} _VERL_ENV_OLD_{name}\n")
    functions = ["_verl_env_without", *(["_verl_env_seal", "_verl_env_shadows"] if sealed else [])]
    lines.append("    unset _verl_env_kept _verl_env_rest _verl_env_part _verl_env_file _verl_env_found\n")
    lines.append(f"    unset -f deactivate _verl_env_undo {' '.join(functions)} 2>/dev/null || :\n")
    lines.append("    hash -r 2>/dev/null || :\n}\nhash -r 2>/dev/null || :\n")
    return "".join(lines)
