"""`verl-env install`: real uv, real environments, tiny wheels from an index on loopback."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time

import pytest

from tiny import MACHINE, MINOR, build_wheel, pin_of, snapshot
from verl_env.environment.receipt import NAME


def environments(tool):
    """Return the names of complete environments, and of whatever else stands beside them."""
    folder = tool.data / "environments"
    every = sorted(it.name for it in folder.iterdir()) if folder.is_dir() else []
    whole = [name for name in every if (folder / name / NAME).is_file()]
    return whole, [name for name in every if name not in whole and not name.endswith(".lock")]


def newer_row(site, wheels, row, **parts):
    """Add a row that is chosen before `tiny`."""
    return site.add_row(row, wheels, set={"verl": "100.0"}, **parts)


@pytest.fixture
def wanted(wheels):
    """Return the wheels of the row `tiny`."""
    return [wheels["torch"], wheels["verl"], wheels["tiny-sub"]]


def test_installs_proves_and_switches(tiny):
    """The newest row is chosen, installed by hash, imported, its receipt written, and `current` points at it."""
    done = tiny("install", "--json", "--cpu")
    assert 0 == done.code, done.err
    data = done.json["data"]
    receipt = data["receipt"]
    assert (True, "tiny", "imports", "none") == (data["changed"], receipt["row"], receipt["level"], receipt["device"])
    assert [("imports", "torch"), ("imports", "verl")] == [(it["level"], it["name"]) for it in receipt["shown"]]
    (name,), rest = environments(tiny)
    assert (name, []) == (receipt["name"], rest)
    assert f"environments/{name}" == os.readlink(tiny.current)
    folder = tiny.current.resolve()
    assert str(folder) == data["folder"]
    said = subprocess.run(
        [folder / "bin/python", "-c", "import verl, sys; print(verl.__version__, sys.prefix)"],
        capture_output=True, text=True, check=True, env={},
    )  # fmt: skip
    assert f"99.0 {folder}\n" == said.stdout
    assert {"exports.sh", "exports.fish", "pylock.tiny.toml", NAME} <= {it.name for it in folder.iterdir()}


def test_bytecode_rests_on_contents(tiny):
    """Every .pyc is checked-hash (PEP 552): its validity does not rest on a clock."""
    assert 0 == tiny("install", "--cpu").code
    compiled = sorted(tiny.current.resolve().glob("lib/*/site-packages/verl/__pycache__/*.pyc"))
    assert 1 == len(compiled)
    assert b"\x03\x00\x00\x00" == compiled[0].read_bytes()[4:8]


def test_again_says_so_and_needs_no_network(tiny):
    """A second run says what is there, changes nothing, and works with the index gone."""
    assert 0 == tiny("install", "--cpu").code
    asked, before = len(tiny.index.asked), snapshot(tiny.home)
    tiny.index.stop()
    done = tiny("install", "--json", "--cpu")
    assert (0, False) == (done.code, done.json["data"]["changed"])
    assert (asked, before) == (len(tiny.index.asked), snapshot(tiny.home))
    assert "is already there, and current" in tiny("install", "--cpu").out


def test_switches_back_without_building(tiny, wanted):
    """An environment that stands is only made current again."""
    assert 0 == tiny("install", "--cpu").code
    first = os.readlink(tiny.current)
    newer_row(tiny.site, wanted, "tiny-two", imports=("torch",))
    assert 0 == tiny("install", "--cpu").code
    assert first != os.readlink(tiny.current)
    tiny.index.stop()
    done = tiny("install", "--json", "--cpu", "--row", "tiny")
    assert (0, True, first) == (done.code, done.json["data"]["changed"], os.readlink(tiny.current))
    assert 2 == len(environments(tiny)[0])


def test_failed_import_is_shown_and_current_stays(tiny, wheels, wanted):
    """Exit 7; the import, its last line and its log are named; the environment in use is as it was."""
    assert 0 == tiny("install", "--cpu").code
    before, link = environments(tiny), os.readlink(tiny.current)
    newer_row(tiny.site, [*wanted, wheels["ray"]], "tiny-bad", imports=("torch", "ray"))
    done = tiny("install", "--cpu", "--json")
    (error,) = done.json["errors"]
    assert (7, "smoke") == (done.code, error["code"])
    assert "ModuleNotFoundError: No module named 'ray_of_light_that_is_not_there'" in "\n".join(error["details"])
    (log,) = [line.split("log: ")[1] for line in error["details"] if "log: " in line]
    with open(log) as text:
        assert "Traceback" in text.read()
    assert (before, link) == (environments(tiny), os.readlink(tiny.current))
    assert "FAILED" in done.err
    assert "ray" in done.err


def test_failed_build_is_kept_when_asked(tiny, wheels, wanted):
    """--keep-failed leaves the folder to look into; it is not complete, and a later run takes its place."""
    newer_row(tiny.site, [*wanted, wheels["ray"]], "tiny-bad", imports=("ray",))
    assert 7 == tiny("install", "--cpu", "--keep-failed").code
    whole, rest = environments(tiny)
    assert ([], True) == (whole, any((tiny.data / "environments" / it / "bin/python").exists() for it in rest))
    assert not tiny.current.exists()
    assert 7 == tiny("install", "--cpu").code
    assert ([], []) == environments(tiny)


def test_level_files_imports_nothing(tiny, wheels, wanted):
    """The proof says `files` when nothing was imported, even for a set that could not be."""
    newer_row(tiny.site, [*wanted, wheels["ray"]], "tiny-bad", imports=("ray",))
    done = tiny("install", "--cpu", "--json", "--level", "files")
    assert (0, "files", []) == (done.code, done.json["data"]["receipt"]["level"], done.json["data"]["receipt"]["shown"])


def test_an_import_that_does_not_end_is_ended(tiny, wheels, wanted, tmp_path):
    """A module that hangs fails by its limit, with its children."""
    pid = tmp_path / "pid"
    hang = f"import os, subprocess, time\nopen({str(pid)!r}, 'w').write(str(os.getpid()))\nsubprocess.run(['sleep', '1000'])\n"
    slow = build_wheel(wheels["torch"].parent, "hanging", "1.0", files={"hanging/__init__.py": hang})
    newer_row(tiny.site, [*wanted, slow], "tiny-slow", imports=("hanging",))
    done = tiny("install", "--cpu", "--time-limit", "3")
    assert (7, True) == (done.code, "no end after 3 s" in done.err)
    argv = ["ps", "-o", "stat=", "-g", pid.read_text()]
    members = subprocess.run(argv, capture_output=True, text=True, check=False).stdout.split()
    assert [] == [state for state in members if not state.startswith("Z")]  # a container's init may not reap


def test_dry_run_touches_nothing(tiny):
    """--dry-run says row, folder, sizes and imports; nothing is written and no package is asked for."""
    before = snapshot(tiny.home), snapshot(tiny.work), snapshot(tiny.site.folder)
    done = tiny("install", "--cpu", "--dry-run")
    assert 0 == done.code, done.err
    assert before == (snapshot(tiny.home), snapshot(tiny.work), snapshot(tiny.site.folder))
    assert [] == tiny.index.asked
    for said in ("row tiny", str(tiny.data / "environments"), "3 packages", "import torch, verl"):
        assert said in done.out


def test_another_home(tiny, tmp_path):
    """--home moves environments, logs and cache; nothing is written to the user's home."""
    before = snapshot(tiny.home)
    assert 0 == tiny("install", "--cpu", "--home", tmp_path / "big disk").code
    assert before == snapshot(tiny.home)
    assert (tmp_path / "big disk/current/bin/python").exists()


@pytest.fixture
def far(tiny, tmp_path, wheels):
    """Add a better row, whose torch only the source `far` has, and that source is out of reach; return its folder."""
    torch = build_wheel(tmp_path / "far", "torch", "2.13.1")
    newer_row(tiny.site, [torch, wheels["verl"], wheels["tiny-sub"]], "tiny-far", sources={"torch": "far"})
    tiny.site.write("mirrors.toml", '[source.far]\nurl = "http://127.0.0.1:9/simple/"\nwhere = "tests"\n')
    return torch.parent


def test_row_out_of_reach_falls_to_the_next(tiny, far):
    """A better row whose source cannot be reached is passed over, and the reason is said."""
    done = tiny("install", "--cpu", "--json")
    assert (0, "tiny") == (done.code, done.json["data"]["receipt"]["row"]), done.err
    assert "row tiny-far was passed over: out of reach from this node: torch 2.13.1 (source `far`)" in done.err
    assert far.is_dir()


def test_index_for_a_source_brings_its_row_back(tiny, far, serve):
    """VERL_ENV_INDEX_FAR names a mirror for one source, and the row is chosen."""
    done = tiny("install", "--cpu", "--json", VERL_ENV_INDEX_FAR=serve(far).url)
    assert (0, "tiny-far") == (done.code, done.json["data"]["receipt"]["row"]), done.err


def test_folder_of_wheels_is_enough(tiny, wheels):
    """A configured folder of wheels installs the set with no index at all."""
    tiny.index.stop()
    tiny.index = None
    folder = str(wheels["torch"].parent)
    done = tiny("install", "--cpu", UV_FIND_LINKS=folder, UV_DEFAULT_INDEX="http://127.0.0.1:9/simple/")
    assert 0 == done.code, done.err


def test_a_wrong_hash_on_the_index_is_refused(tiny, wanted):
    """An index that has another file by that name is refused before anything is built; both hashes are shown."""
    tiny.index.hashes[wanted[0].name] = "0" * 64
    done = tiny("install", "--cpu")
    assert 5 == done.code
    assert f"`{wanted[0].name}` is another file here" in done.err
    assert "sha256 " + "0" * 64 in done.err
    assert pin_of(wanted[0]).sha256 in done.err
    assert ([], []) == environments(tiny)


def test_a_file_that_is_not_what_its_index_says_is_refused(tiny, wheels, wanted, serve, tmp_path):
    """Bytes that do not give the pinned hash are refused by uv, and nothing is left."""
    evil = tmp_path / "evil"
    build_wheel(evil, "torch", "2.13.0", files={"torch/__init__.py": "evil = True\n"})
    for it in wanted[1:]:
        os.link(it, evil / it.name)
    index = serve(evil)
    index.hashes[wheels["torch"].name] = pin_of(wheels["torch"]).sha256
    tiny.index = index
    done = tiny("install", "--cpu")
    assert (6, True) == (done.code, "ash mismatch" in done.err), done.err
    assert ([], []) == environments(tiny)
    assert not tiny.current.exists()


def wait_for_gate(index, child):
    """Wait until uv stands at the gated file."""
    while not index.waiting.wait(0.1):
        assert None is child.poll(), child.communicate()


def test_killed_at_work_and_run_again(tiny, serve, wheels):
    """Kill -9 in the middle leaves the old environment in use; a rerun completes."""
    assert 0 == tiny("install", "--cpu").code
    link = os.readlink(tiny.current)
    extra = build_wheel(wheels["torch"].parent, "gated", "1.0")
    newer_row(tiny.site, [wheels["torch"], wheels["verl"], wheels["tiny-sub"], extra], "tiny-two", imports=("gated",))
    tiny.index = serve(wheels["torch"].parent, gated="gated-")
    child = tiny.start("install", "--cpu")
    wait_for_gate(tiny.index, child)
    os.killpg(child.pid, signal.SIGKILL)
    tiny.finish(child)
    tiny.index.gate.set()
    assert link == os.readlink(tiny.current)
    assert 1 == len(environments(tiny)[0])
    assert 0 == tiny("run", "--", "python", "-c", "import verl").code
    done = tiny("install", "--cpu")
    assert 0 == done.code, done.err
    whole, rest = environments(tiny)
    assert (2, [], True) == (len(whole), rest, "tiny-two" in os.readlink(tiny.current))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_interrupted(tiny, serve, wheels, number):
    """Ctrl-C and SIGTERM: exit 130, children ended, nothing half-built left, one line that says so."""
    tiny.index = serve(wheels["torch"].parent, gated="torch-")
    child = tiny.start("install", "--cpu", "--json")
    wait_for_gate(tiny.index, child)
    os.kill(child.pid, number)
    done = tiny.finish(child)
    assert (130, "interrupted") == (done.code, done.json["errors"][0]["code"])
    assert "Traceback" not in done.err
    assert ([], []) == environments(tiny)
    left = subprocess.run(["ps", "-eo", "stat=,args="], capture_output=True, text=True, check=True).stdout
    assert [] == [it for it in left.splitlines() if str(tiny.data) in it and not it.startswith("Z")]
    tiny.index.gate.set()
    assert 0 == tiny("install", "--cpu").code


def test_two_at_once(tiny, serve, wheels):
    """The second waits for the first and finds its work done: one build, both say 0."""
    tiny.index = serve(wheels["torch"].parent, gated="torch-")
    first = tiny.start("install", "--cpu", "--json")
    wait_for_gate(tiny.index, first)
    fetched = [it for it in tiny.index.asked if it.startswith("/files/torch")]
    second = tiny.start("install", "--cpu")
    lines = []
    while "waiting for it" not in "".join(lines[-1:]):
        lines.append(second.stderr.readline())
        assert lines[-1], "".join(lines)
    tiny.index.gate.set()
    assert (0, 0) == (tiny.finish(first).code, tiny.finish(second).code)
    whole, rest = environments(tiny)
    assert (1, []) == (len(whole), rest)
    assert fetched == [it for it in tiny.index.asked if it.startswith("/files/torch")]


def test_waiting_ends(tiny, serve, wheels):
    """Whoever does not want to wait for another installer is told so: code 13, and the other goes on."""
    tiny.index = serve(wheels["torch"].parent, gated="torch-")
    first = tiny.start("install", "--cpu")
    wait_for_gate(tiny.index, first)
    second = tiny("install", "--cpu", "--json", "--wait", "0.5")
    assert (13, "busy") == (second.code, second.json["errors"][0]["code"])
    tiny.index.gate.set()
    assert 0 == tiny.finish(first).code
    assert 1 == len(environments(tiny)[0])


def test_a_folder_of_somebody_elses_is_left_alone(tiny):
    """Something that stands where the environment would go, and is not ours, is refused and kept."""
    name = tiny("install", "--cpu", "--dry-run", "--json").json["data"]["folder"]
    os.makedirs(name)
    with open(f"{name}/thesis.txt", "w") as file:
        file.write("years of work")
    done = tiny("install", "--cpu")
    assert (11, ["thesis.txt"]) == (done.code, os.listdir(name))
    assert "verl-env did not make it" in done.err


def test_current_that_is_no_link_of_ours_is_left_alone(tiny):
    """A folder named `current` is not replaced."""
    tiny.current.mkdir(parents=True)
    done = tiny("install", "--cpu")
    assert (6, True) == (done.code, tiny.current.is_dir() and not tiny.current.is_symlink())
    assert "is not a link of ours" in done.err


def test_for_gpu_nodes_on_this_machine(tiny, wheels):
    """A described driver builds a CUDA row here; the proof says that no device was present, and the settings are shown."""
    wanted = [wheels["torch-gpu"], wheels["verl"], wheels["tiny-sub"]]
    newer_row(tiny.site, wanted, "tiny-gpu", cuda="13.0", settings=["a.b=sdpa"], imports=("verl",))
    done = tiny("install", "--driver", "580.95.05", CUDA_HOME="/usr/local/cuda-11.8")
    assert 0 == done.code, done.err
    assert "device: none" in done.out
    assert "no kernel ran" in done.out
    assert "  a.b=sdpa" in done.out
    exports = {it["name"]: it["how"] for it in tiny("env", "--json").json["data"]["exports"]}
    assert exports["CUDA_HOME"] in ("set", "unset")  # whether this machine has a toolkit of 13.0 or not, it is decided


def test_ambient_settings_do_not_get_in(tiny, tmp_path):
    """PYTHONPATH, a project's uv.toml and pip's environment change nothing of what is installed."""
    (tmp_path / "evil/torch").mkdir(parents=True)
    (tmp_path / "evil/torch/__init__.py").write_text("raise RuntimeError('leaked')\n")
    (tiny.work / "uv.toml").write_text('[pip]\nno-index = true\nonly-binary = [":none:"]\n')
    (tiny.work / "torch.py").write_text("raise RuntimeError('leaked')\n")
    more = {"UV_NO_INDEX": "1", "PIP_NO_INDEX": "1", "UV_CONSTRAINT": "/nowhere", "UV_SYSTEM_PYTHON": "1"}
    search = os.pathsep.join([tiny.variables()["PYTHONPATH"], str(tmp_path / "evil")])
    done = tiny("install", "--cpu", **more, PYTHONPATH=search)
    assert 0 == done.code, done.err


def test_progress_is_lines_without_a_terminal(tiny):
    """Progress goes to stderr as plain lines, data to stdout; --quiet leaves only data."""
    done = tiny("install", "--cpu", "--json")
    assert "[2/2] passed" in done.err
    assert "\033" not in done.err
    assert json.loads(done.out)
    quiet = tiny("install", "--cpu", "--quiet", "--home", tiny.work / "again")
    assert (0, "") == (quiet.code, quiet.err)


def test_time_and_machine_are_in_the_receipt(tiny):
    """The receipt names the exact Python, the lock's digest, and who made it."""
    receipt = tiny("install", "--cpu", "--json").json["data"]["receipt"]
    assert receipt["python"].startswith(f"{MINOR}.")
    assert receipt["by"].startswith("verl-env ")
    assert receipt["made"][:10] in {time.strftime("%Y-%m-%d", time.gmtime(time.time() - it)) for it in (0, 60)}
    assert MACHINE in (tiny.current.resolve() / "pylock.tiny.toml").read_text()


def test_failed_import_is_explained(tiny, wheels, serve, tmp_path):
    """What is known of the failed step's output stands beside the error, and its remedy is the hint."""
    words = "libcudart.so.13: cannot open shared object file: No such file or directory"
    broken = build_wheel(tmp_path / "wheels", "needy", "1.0", files={"needy.py": f"raise ImportError({words!r})\n"})
    torch = wheels["torch"]
    (broken.parent / torch.name).write_bytes(torch.read_bytes())
    tiny.site.add_row("needy", [torch, broken], imports=("needy",), set={"verl": "98.0"})
    tiny.index = serve(broken.parent)
    done = tiny("install", "--cpu", "--row", "needy", "--json")
    assert 7 == done.code, done.err
    assert "libcudart-missing" == done.json["data"]["explanation"]["class"]
    assert any(line.startswith("likely: ") for line in done.json["errors"][0]["details"])
    assert "read the log" not in done.json["errors"][0]["hint"]
