"""`install --base`: an environment that rests on a Python which has torch already, and leaves it as it is."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tiny import MINOR, Site, Tool, build_wheel, snapshot
from verl_env import uv

UV = uv.executable()
SCRIPTS = "[console_scripts]\ntiny-run = torch:main\n"
TORCH = '__version__ = "2.13.0"\ncuda = None\ndef main():\n    import sys, verl\n    print(sys.prefix, verl.__name__)\n'


def make_base(folder, wheels, *, linked=False):
    """Return the Python of a new virtual environment with these wheels in it."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin" / "python"
    subprocess.run([UV, "pip", "install", "-q", "--python", python, "--no-deps", *wheels], check=True)
    if not linked:
        return python
    above = folder.with_name("above")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", above], check=True)
    packages = f"lib/python{MINOR}/site-packages"
    (above / packages / "site.pth").write_text(f"{folder / packages}\n")
    return above / "bin" / "python"


@pytest.fixture
def world(tmp_path, serve):
    """Return verl-env with a row of five packages, and the wheels of a base that has some of them."""
    store, others = tmp_path / "store", tmp_path / "others"
    torch_files = {
        "torch/__init__.py": TORCH,
        "torch/version.py": "cuda: str = None\n",
        "torch-2.13.0.dist-info/entry_points.txt": SCRIPTS,
    }
    row = [
        build_wheel(store, "torch", "2.13.0", files=torch_files),
        build_wheel(store, "verl", "99.0"),
        build_wheel(store, "same", "1.0"),
        build_wheel(store, "differs", "2.0"),
        build_wheel(store, "split-one", "1.0", files={"split/one.py": "WHERE = 'front'\n"}),
    ]
    base = [
        row[0],
        row[2],
        build_wheel(others, "differs", "1.0"),
        build_wheel(others, "extra", "1.0"),
        build_wheel(others, "split-two", "1.0", files={"split/two.py": "WHERE = 'base'\n"}),
    ]
    site = Site(folder=tmp_path / "site")
    site.add_row("tiny", row)
    tool = Tool(home=tmp_path / "home", work=tmp_path / "work", site=site)
    tool.home.mkdir()
    tool.work.mkdir()
    tool.index = serve(store)
    tool.base_wheels, tool.others = base, others
    return tool


def files_of(folder) -> dict:
    """Return the files of a base, but for the bytecode that Python leaves beside what it imports."""
    return {path: it for path, it in snapshot(folder).items() if it[2] is not None and "__pycache__" not in path}


def receipt_of(tool) -> dict:
    return json.loads((tool.current / "verl-env-receipt.json").read_text())


def ask(tool, code):
    """Run code in the environment and return what it printed."""
    done = tool("run", "--", "python", "-c", code)
    assert 0 == done.code, done.err
    return done.out.strip()


@pytest.mark.parametrize("linked", [False, True], ids=["a virtual environment", "one that sees another folder"])
def test_uses_what_the_base_has(world, tmp_path, linked):
    """Same versions are used where they are; what differs or is missing stands in front; the base is untouched."""
    python = make_base(tmp_path / "base", world.base_wheels, linked=linked)
    before = files_of(tmp_path / "base")
    done = world("install", "--cpu", "--row", "tiny", "--base", python)
    assert 0 == done.code, done.err
    made = receipt_of(world)
    own = sorted(it.name.split("-")[0] for it in world.current.glob("lib/python*/site-packages/*.dist-info"))
    assert ["differs", "split_one", "verl"] == own
    assert (["same 1.0", "torch 2.13.0"], str(python)) == (made["base"]["used"], made["base"]["python"])
    assert "differs 2.0 (its 1.0)" in " ".join(made["notes"])
    versions = "import differs, torch, same, extra; print(differs.__version__, torch.__version__, extra.__version__)"
    assert "2.0 2.13.0 1.0" == ask(world, versions)
    metadata = "from importlib.metadata import version as v; print(v('differs'), v('torch'))"
    assert "2.0 2.13.0" == ask(world, metadata)
    assert "front base" == ask(world, "import split.one, split.two; print(split.one.WHERE, split.two.WHERE)")
    assert before == files_of(tmp_path / "base")


def test_programs_of_the_base_run_here(world, tmp_path):
    """A console script of a package that is used runs with the environment's Python, and sees what is in front."""
    python = make_base(tmp_path / "base", world.base_wheels)
    assert 0 == world("install", "--cpu", "--row", "tiny", "--base", python).code
    done = world("run", "--", "tiny-run")
    assert f"{world.current.resolve()} verl" == done.out.strip()


def test_is_another_environment_than_without_a_base(world, tmp_path):
    """The same lock with and without a base are two environments; each is found again."""
    python = make_base(tmp_path / "base", world.base_wheels)
    assert 0 == world("install", "--cpu", "--row", "tiny", "--base", python).code
    over = world.current.resolve().name
    assert 0 == world("install", "--cpu", "--row", "tiny").code
    plain = world.current.resolve().name
    again = world("install", "--cpu", "--row", "tiny", "--base", python)
    assert (True, True, 0) == (over.startswith(f"{plain}-on-"), "now current" in again.out, again.code)
    listed = json.loads(world("list", "--json").out)["data"]["environments"]
    assert {plain, over} == {it["name"] for it in listed}


def change_version(world, python):
    wheel = build_wheel(world.others, "same", "1.1")
    subprocess.run([UV, "pip", "install", "-q", "--python", python, "--no-deps", wheel], check=True)


def change_content(world, python):
    wheel = build_wheel(world.others, "torch", "2.13.0", files={"torch/__init__.py": "built again = 1\n"})
    subprocess.run([UV, "pip", "install", "-q", "--reinstall", "--python", python, "--no-deps", wheel], check=True)


def change_more(world, python):
    wheel = build_wheel(world.others, "more", "1.0")
    subprocess.run([UV, "pip", "install", "-q", "--python", python, "--no-deps", wheel], check=True)


def remove_python(_world, python):
    python.unlink()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        pytest.param(change_version, "same 1.0 is now 1.1", id="another version"),
        pytest.param(change_content, "added, removed or built again", id="built again"),
        pytest.param(change_more, "added, removed or built again", id="one more package"),
        pytest.param(remove_python, "does not start", id="gone"),
    ],
)
def test_verify_notices_when_the_base_changes(world, tmp_path, change, said):
    """An environment over a base is what it was only while the base is."""
    python = make_base(tmp_path / "base", world.base_wheels)
    assert 0 == world("install", "--cpu", "--row", "tiny", "--base", python).code
    assert 0 == world("verify").code
    change(world, python)
    done = world("verify")
    assert (1, True) == (done.code, said in done.out), done.out


@pytest.mark.parametrize(
    ("version", "cuda", "said"),
    [
        pytest.param("2.12.0", "", "it has torch 2.12.0, 2.13.0 is locked, and torch is never replaced", id="older"),
        pytest.param("2.13.0+cu130", "", "it has torch 2.13.0+cu130", id="another build"),
        pytest.param("2.13.0", "13.0", "built for CUDA 13.0, and the lock is for CPUs", id="for GPUs"),
        pytest.param("2.13.0a0+nv26.1", "13.0", "it has torch 2.13.0a0+nv26.1", id="a vendor's"),
    ],
)
def test_torch_is_never_replaced(world, tmp_path, version, cuda, said):
    """A base with another torch is refused with both versions, and nothing is built."""
    files = {"torch/__init__.py": "", "torch/version.py": f"cuda: str = {cuda or None!r}\n"}
    python = make_base(tmp_path / "base", [build_wheel(world.others, "torch", version, files=files)])
    done = world("install", "--cpu", "--row", "tiny", "--base", python)
    assert (True, False) == (said in done.err, world.current.exists()), done.err
    lock = world.work / "pylock.tiny.toml"
    assert 0 == world("lock", "--cpu", "--row", "tiny", "-o", lock).code
    given = world("install", lock, "--base", python)
    assert (11, True, False) == (given.code, said in given.err, world.current.exists()), given.err


def test_a_base_that_is_no_python(world):
    """What cannot be asked is named."""
    done = world("install", "--cpu", "--row", "tiny", "--base", "/bin/cat")
    assert (11, True) == (done.code, "does not say what it has" in done.err), done.err


def test_row_is_chosen_for_the_base(world, tmp_path):
    """Without a row, one that fits the base's torch is chosen, and the others say why they were not."""
    store = tmp_path / "store"
    world.site.add_row("newer", [build_wheel(store, "torch", "2.14.0"), build_wheel(store, "verl", "100.0")])
    python = make_base(tmp_path / "base", world.base_wheels)
    done = world("install", "--cpu", "--base", python, "--python", MINOR)
    assert 0 == done.code, done.err
    assert "tiny" == receipt_of(world)["row"]
