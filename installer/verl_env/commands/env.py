"""`verl-env env`: the variables an environment needs, for a shell, a file, a scheduler or a notebook."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from verl_env import output
from verl_env.environment.activation import activation_of, inheriting, values_of
from verl_env.environment.jupyter_kernel import Kernel, check_name, has_ipykernel, kernel_of, register
from verl_env.environment.receipt import find_environment
from verl_env.environment.shells import FORMATS, render_exports
from verl_env.errors import UsageError
from verl_env.output import Result
from verl_env.records import to_plain

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from verl_env.environment.activation import Activation


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add which environment and which form."""
    parser.add_argument("environment", nargs="?", metavar="NAME", help="an environment (default: the current one)")
    parser.add_argument("--format", choices=FORMATS, default="sh", help="how to write them (default: sh)")
    parser.add_argument(
        "--on",
        metavar="ray:HOST:PORT",
        help="with --format ray: refuse when that cluster runs another Ray or Python than the environment",
    )
    parser.add_argument("--kernel", metavar="NAME", help="register it as a Jupyter kernel of this name instead")
    parser.add_argument("--dry-run", action="store_true", help="with --kernel: say what would be written")
    add_inherit_argument(parser)


def add_inherit_argument(parser: argparse.ArgumentParser) -> None:
    """Add the way to let other people's things in."""
    text = "leave PYTHONPATH, the user's site-packages, CONDA_PREFIX and LD_LIBRARY_PATH as they are"
    parser.add_argument("--inherit", action="store_true", help=text)


def run(args: argparse.Namespace) -> Result:
    """Render the receipt's exports; they name the environment's own folder, never `current`."""
    if args.dry_run and not args.kernel:
        raise UsageError("--dry-run goes with --kernel: nothing else is written", hint="leave --dry-run away")
    folder, receipt = find_environment(args.environment)
    if args.on:
        _refuse_another_ray(args.on, args.format, folder)
    activation = activation_of(folder, receipt.exports, os.environ)
    if args.inherit:
        activation = inheriting(activation)
    if args.verbose:
        show_library_path(activation)
    data = {
        "environment": folder.name,
        "exports": [to_plain(export) for export in activation.exports],
        "values": {export.name: None for export in activation.exports} | values_of(activation),
        "library_path": library_path(activation),
    }
    if args.kernel:
        return _kernel(kernel_of(check_name(args.kernel), receipt.title, activation), data, dry=args.dry_run)
    return Result(data=data, text=render_exports(activation, args.format).rstrip("\n"))


def _refuse_another_ray(on: str, form: str, folder: Path) -> None:
    """Join the cluster with the environment's own Ray, which compares both versions, and leave; raises EngineError."""
    engine, _, address = on.partition(":")
    if form != "ray" or engine != "ray":
        raise UsageError("--on goes with --format ray, and names a Ray cluster", hint="--format ray --on ray:HOST:6379")
    from verl_env.cluster.ray import RayEngine

    RayEngine(address or None, str(folder)).close()


def show_library_path(activation: Activation) -> None:
    """Say on stderr which folders of LD_LIBRARY_PATH programs get, and which they do not."""
    for part in activation.parts:
        output.note(f"LD_LIBRARY_PATH: {part.folder or '(empty)'} {'stays' if part.kept else 'goes'}: {part.why}")


def library_path(activation: Activation) -> dict[str, Any]:
    """Return what of LD_LIBRARY_PATH stays and what goes, each folder with its reason."""
    plain = [(part.kept, {"folder": part.folder, "why": part.why}) for part in activation.parts]
    return {"kept": [it for kept, it in plain if kept], "dropped": [it for kept, it in plain if not kept]}


def _kernel(kernel: Kernel, data: dict[str, Any], *, dry: bool) -> Result:
    """Register the kernel, or say what would be written."""
    if not has_ipykernel(kernel):
        output.warn(
            "ipykernel is not in the environment, and the kernel will not start without it: lock --with ipykernel"
        )
    changed = register(kernel, dry=dry)
    data |= {
        "kernel": {"name": kernel.name, "file": str(kernel.file), "spec": kernel.spec},
        "changed": changed and not dry,
    }
    what = "would write" if dry else "wrote" if changed else "is as it was:"
    return Result(data=data, text=f"kernel {kernel.name}: {what} {kernel.file}")
