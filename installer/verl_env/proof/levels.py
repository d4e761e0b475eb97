"""The proof levels this verl-env reaches, and the jobs that show each. Pure."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from verl_env.proof.runs import Job

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# Each level includes those before it.
LEVELS = ("files", "imports", "behaviour")

# What makes a row `imported`, `exercised` (matrix/status.py).
STATUS_OF_LEVEL = {"imports": "imported", "behaviour": "exercised"}

_CHECKS_FILE = Path(__file__).with_name("behaviour_checks.py")
_IMPORT = "import importlib, sys; importlib.import_module(sys.argv[1])"

# check -> the package of the set that it is about; a set without that package has nothing to show there.
CHECKS = {
    "vllm_tokenizer": "vllm",
    "sglang_tokenizer": "sglang",
    "verl_tokenizer": "verl",
    "tiny_model": "transformers",
    "data_proto": "verl",
    "grpo_advantage": "verl",
    "trainer_config": "verl",
    "parquet_dataset": "verl",
    "ray_actor": "ray",
    "verl_worker_group": "verl",
}


def jobs_of(
    level: str, imports: Iterable[str], packages: Mapping[str, str], settings: Iterable[str]
) -> tuple[Job, ...]:
    """Return the jobs up to a level. `settings` are the row's verl settings: its trainer config takes them."""
    jobs: list[Job] = []
    if level in LEVELS[1:]:
        jobs += [Job(level="imports", name=name, arguments=("-c", _IMPORT, name)) for name in imports]
    if level in LEVELS[2:]:
        for name in (name for name, package in CHECKS.items() if package in packages):
            words = tuple(settings) if name == "trainer_config" else ()
            jobs.append(Job(level="behaviour", name=name, arguments=(str(_CHECKS_FILE), name, *words)))
    return tuple(jobs)
