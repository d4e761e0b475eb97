"""A checkout of verl that goes over the pins: what it is and what it declares, read without running it. An edge."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from verl_env import process, toml
from verl_env.errors import LockError, UsageError
from verl_env.lock.table import Editable
from verl_env.urls import bare_url

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_GIT_SECONDS = 60.0


def read_checkout(given: str, lock_folder: Path, extras: Mapping[str, Iterable[str]]) -> Editable:
    """Read a checkout at `given` (relative to this process); raises UsageError when it is no Python project.

    `extras` are those that the row installs packages with, by name; what they declare counts too.
    """
    folder = Path(given)
    if not folder.is_dir():
        raise UsageError(f"no folder at `{given}`", hint="name a checkout: --editable ./verl")
    name, version, dependencies = _project(folder, extras)
    commit = git_answer(folder, "rev-parse", "HEAD")
    remote = git_answer(folder, "config", "--get", "remote.origin.url") if commit else None
    return Editable(
        name=canonicalize_name(name),
        path=_relative(folder, lock_folder),
        version=version,
        commit=commit,
        remote=bare_url(remote) if remote and not remote.startswith(("/", "file:", ".")) else None,
        dirty=bool(commit and git_answer(folder, "status", "--porcelain", "--untracked-files=no")),
        pushed=bool(commit and git_answer(folder, "branch", "--remotes", "--contains", commit)),
        dependencies=dependencies,
    )


def _relative(folder: Path, lock_folder: Path) -> str:
    """Return the path from the lockfile to the checkout, so that both can be moved together."""
    import os

    return Path(os.path.relpath(folder.resolve(), lock_folder.resolve())).as_posix()


def git_answer(folder: Path, *words: str) -> str | None:
    """Ask git, with none of its pagers, hooks or prompts; None when it has no answer or is not there."""
    quiet = {"GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    argv = ["git", "-C", str(folder), "-c", "core.fsmonitor=false", *words]
    try:
        done = process.run(argv, env=process.clean_environ(quiet), timeout=_GIT_SECONDS)
    except OSError:
        return None
    return (done.stdout.strip() or None) if done.returncode == 0 else None


def _project(folder: Path, extras: Mapping[str, Iterable[str]]) -> tuple[str, str | None, tuple[str, ...] | None]:
    """Return name, version and dependencies out of pyproject.toml, and setup.py for what it leaves to that."""
    path = folder / "pyproject.toml"
    try:
        project: Any = toml.loads(path.read_text(encoding="utf-8")).get("project", {}) if path.is_file() else {}
        script = _setup_arguments(folder / "setup.py")
    except (OSError, ValueError, SyntaxError, RecursionError) as err:
        raise LockError(f"`{folder}` has a project file that cannot be read: {err}", hint="correct that file") from err
    if not isinstance(project, dict):
        project = {}
    name = project.get("name") or script.get("name")
    if not isinstance(name, str):
        raise UsageError(
            f"`{folder}` states no package name in pyproject.toml or setup.py", hint="name a checkout of verl"
        )
    version = project.get("version") or script.get("version")
    dynamic = project.get("dynamic", []) if project else ["dependencies", "optional-dependencies"]
    declared = script.get("install_requires") if "dependencies" in dynamic else project.get("dependencies", [])
    optional = (
        script.get("extras_require") if "optional-dependencies" in dynamic else project.get("optional-dependencies", {})
    )
    return (
        name,
        version if isinstance(version, str) else None,
        _declared(name, declared, optional, frozenset(extras.get(canonicalize_name(name), ()))),
    )


def _declared(name: str, declared: Any, optional: Any, extras: frozenset[str]) -> tuple[str, ...] | None:
    """Return what is declared, with the extras' part; None when it is not a plain list of requirements."""
    if not isinstance(declared, list) or (extras and not isinstance(optional, dict)):
        return None
    found = list(declared)
    todo, seen = set(extras), set()
    groups = {canonicalize_name(str(key)): value for key, value in (optional or {}).items()}
    while todo:
        extra = todo.pop()
        seen.add(extra)
        for text in groups.get(canonicalize_name(extra), []):
            requirement = _parsed(text)
            if requirement and canonicalize_name(requirement.name) == canonicalize_name(name):
                todo |= set(requirement.extras) - seen  # `verl[gpu]` inside of an extra of verl's
            else:
                found.append(text)
    parsed = [_parsed(text) for text in found]
    return None if None in parsed else tuple(dict.fromkeys(str(it) for it in parsed))


def _parsed(text: Any) -> Requirement | None:
    try:
        return Requirement(text) if isinstance(text, str) else None
    except InvalidRequirement:
        return None


def _setup_arguments(path: Path) -> dict[str, Any]:
    """Return the arguments of `setup(…)` in setup.py that can be read without running it."""
    if not path.is_file():
        return {}
    tree = ast.parse(path.read_text(encoding="utf-8"))
    values: dict[str, Any] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            values[node.targets[0].id] = _literal(node.value, values)
    values |= dict.fromkeys(_changed_later(tree))
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        if getattr(call.func, "id", getattr(call.func, "attr", "")) == "setup":
            return {it.arg: _literal(it.value, values) for it in call.keywords if it.arg}
    return {}


def _changed_later(tree: ast.Module) -> Iterator[str]:
    """Yield names whose value is not what the module's first assignment says: `x += …`, `x.append(…)`, `x[…] = …`."""
    plain = {id(node) for node in tree.body}
    for node in ast.walk(tree):
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            yield node.target.id
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if isinstance(node.func.value, ast.Name) and node.func.attr in ("append", "extend", "insert", "update"):
                yield node.func.value.id
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                inner = target.value if isinstance(target, ast.Subscript) else target
                if isinstance(inner, ast.Name) and (inner is not target or id(node) not in plain):
                    yield inner.id


def _literal(node: ast.expr, values: dict[str, Any]) -> Any:
    """Evaluate literals, names assigned before, and their sums; None for all else."""
    if isinstance(node, ast.Name):
        return values.get(node.id)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = _literal(node.left, values), _literal(node.right, values)
        return left + right if type(left) is type(right) and isinstance(left, (list, str)) else None
    if isinstance(node, (ast.List, ast.Tuple)):
        items = [_literal(it, values) for it in node.elts]
        return None if None in items else items
    if isinstance(node, ast.Dict):
        keys = [_literal(it, values) if it else None for it in node.keys]
        return dict(zip(keys, (_literal(it, values) for it in node.values), strict=True)) if None not in keys else None
    return node.value if isinstance(node, ast.Constant) else None
