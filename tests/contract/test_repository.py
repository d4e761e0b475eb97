"""What no file of the repository may hold, and what each must be."""

from __future__ import annotations

import json
import re
import subprocess

import pytest

from tiny import ROOT
from verl_env import toml

# Written in parts, so that this file does not hold them.
REGISTRY_HOSTS = [
    ".".join(parts) for parts in (("pypi", "org"), ("files", "pythonhosted", "org"), ("upload", "pypi", "org"))
]
MACHINE_PATHS = [
    f"/{parts[0]}/{parts[1]}"
    for parts in (("work", "main"), ("work", "shared"), ("root", ".pyenv"), ("opt", "wheels"), ("tmp", "tools"))
]
TEXTS = {".py", ".sh", ".toml", ".md", ".in", ".txt", ".json", ".yml", ".yaml", ".cfg", ""}


def tracked():
    """Return every file that git would carry."""
    argv = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("this is no checkout")
    return [ROOT / name for name in done.stdout.split("\0") if name and (ROOT / name).is_file()]


def test_no_registry_host_and_no_machine_path():
    """Which index is in use is the user's to say; a path of somebody's machine helps nobody."""
    found = [
        f"{path.relative_to(ROOT)}: {word}"
        for path in tracked()
        if path.suffix in TEXTS
        for word in (*REGISTRY_HOSTS, *MACHINE_PATHS)
        if word in path.read_text(errors="replace")
    ]
    assert [] == found


def test_requirements_are_hashed_and_name_no_index():
    """Tools are pinned by hash; where they come from is the machine's setting."""
    text = (ROOT / "requirements/dev.txt").read_text()
    assert "://" not in text
    assert "--index" not in text
    pins = re.findall(r"^[\w.-]+(?:\[[\w,-]+\])?==\S+", text, flags=re.MULTILINE)
    hashed = re.findall(r"^[\w.-]+(?:\[[\w,-]+\])?==[^\n]*\\\n    --hash=sha256:[0-9a-f]{64}", text, flags=re.MULTILINE)
    assert len(pins) == len(hashed) > 10


def test_requirements_cover_the_runtime():
    """Every runtime dependency of pyproject.toml is among the pinned tools."""
    text = (ROOT / "requirements/dev.txt").read_text()
    wanted = toml.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    names = [re.split(r"[<>=!;\[ ]", it, maxsplit=1)[0] for it in wanted]
    assert [] == [name for name in names if not re.search(rf"^{re.escape(name)}==", text, flags=re.MULTILINE)]


@pytest.mark.parametrize("folder", ["installer", "matrices", "tests", "scripts"])
def test_every_data_file_parses(folder):
    """TOML and JSON files are TOML and JSON, but for the broken ones that tests keep on purpose."""
    for path in (ROOT / folder).rglob("*.toml"):
        if "broken" not in path.parts:
            toml.loads(path.read_text())
    for path in (ROOT / folder).rglob("*.json"):
        if "broken" not in path.parts:
            json.loads(path.read_text())


def test_modules_stay_small():
    """Style §2.2: a module that outgrows 300 lines wants to be two."""
    sizes = {str(it.relative_to(ROOT)): it.read_text().count("\n") for it in (ROOT / "installer").rglob("*.py")}
    assert {} == {name: size for name, size in sizes.items() if size > 300}


def test_no_drawer_for_odds_and_ends():
    """Style §2.2: no utils.py, helpers.py, common.py."""
    assert [] == [it for it in (ROOT / "installer").rglob("*.py") if it.stem in ("utils", "helpers", "common", "misc")]
