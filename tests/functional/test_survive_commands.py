"""`list`, `rollback`, `prune`, `verify`, `repair`: real environments of tiny wheels."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tiny import build_wheel, snapshot


def newer_row(site, wheels, row, verl="100.0"):
    """Add a row that is chosen before those that were there."""
    return site.add_row(row, wheels, set={"verl": verl, "torch": "2.13.0"}, imports=("torch",))


@pytest.fixture
def wanted(wheels):
    """Return the wheels of the row `tiny`."""
    return [wheels["torch"], wheels["verl"], wheels["tiny-sub"]]


@pytest.fixture
def three(tiny, wanted):
    """Return verl-env after three installations, one after the other; the third is current."""
    names = []
    for number, row in enumerate(("tiny", "tiny-two", "tiny-three")):
        if number:
            newer_row(tiny.site, wanted, row, f"{100 + number}.0")
        done = tiny("install", "--cpu", "--json")
        assert 0 == done.code, done.err
        names.append(done.json["data"]["receipt"]["name"])
    return tiny, names


def current(tool):
    """Return the name of the environment in use."""
    return Path(os.readlink(tool.current)).name


def module(tool, name="verl"):
    """Return the path of a module of the environment in use."""
    (found,) = tool.current.resolve().glob(f"lib/python*/site-packages/{name}/__init__.py")
    return found


def listed(tool):
    """Return what `list` says of each environment."""
    return tool("list", "--json").json["data"]["environments"]


def test_list_names_each_with_its_proof(three):
    """One line an environment, oldest first, the current one marked; what stands unfinished is said to be."""
    tool, names = three
    found = listed(tool)
    assert names == [it["name"] for it in found]
    assert [False, False, True] == [it["current"] for it in found]
    assert {"imports"} == {it["level"] for it in found}
    assert all(it["files"] > 10 and it["bytes"] > 0 for it in found)
    lines = tool("list").out.splitlines()
    assert (4, True) == (len(lines), lines[3].startswith("*"))


def test_list_without_environments(tool):
    """Nothing is here: said, and not a failure."""
    done = tool("list", "--json")
    assert (0, []) == (done.code, done.json["data"]["environments"])


def test_rollback_goes_back_step_by_step(three):
    """Each rollback is one step further; then there is none left, which is exit 12, and nothing changes."""
    tool, names = three
    assert 0 == tool("rollback").code
    assert names[1] == current(tool)
    assert 0 == tool("rollback").code
    assert names[0] == current(tool)
    done = tool("rollback")
    assert (12, names[0]) == (done.code, current(tool))


def test_rollback_by_number_and_forward_again(three):
    """N steps at once; installing the newest again switches to it without building."""
    tool, names = three
    assert 0 == tool("rollback", "2").code
    assert names[0] == current(tool)
    tool.index.stop()
    assert 0 == tool("install", "--cpu").code
    assert names[2] == current(tool)
    assert 0 == tool("rollback").code
    assert names[0] == current(tool)


def test_rollback_dry_run_moves_nothing(three):
    """--dry-run names the environment and leaves the link."""
    tool, names = three
    before = snapshot(tool.home)
    done = tool("rollback", "--dry-run", "--json")
    assert (0, names[1]) == (done.code, done.json["data"]["environment"])
    assert before == snapshot(tool.home)


def test_rollback_refuses_a_damaged_environment(three):
    """A file of the earlier one is gone: refused with its name, and `current` stays."""
    tool, names = three
    (gone,) = (tool.data / "environments" / names[1]).glob("lib/python*/site-packages/verl/__init__.py")
    gone.unlink()
    done = tool("rollback")
    assert (6, names[2], True) == (done.code, current(tool), "verl/__init__.py" in done.err)


def test_rollback_without_history_goes_by_age(three):
    """Where the history is gone, the next older one is the way back."""
    tool, names = three
    (tool.data / "switches.json").unlink()
    assert 0 == tool("rollback").code
    assert names[1] == current(tool)


def test_prune_drops_the_bundles_of_environments_that_are_gone(three):
    """What `cluster install` kept for an environment that stands here stays; another's goes, and that is freed."""
    tool, names = three
    folder = tool.data / "cluster"
    folder.mkdir()
    for name in (names[2], "gone-1"):
        (folder / f"{name}.tar").write_bytes(b"x" * 1_000_000)
        (folder / f"{name}.tar.kept").touch()
    assert 1_000_000 <= tool("prune", names[0], "--json").json["data"]["freed_bytes"]
    assert [f"{names[2]}.tar", f"{names[2]}.tar.kept"] == sorted(it.name for it in folder.iterdir())


def test_prune_keeps_current_and_last_good(three):
    """The oldest goes, nothing else of the home is touched, and what that frees is said."""
    tool, names = three
    alien = tool.data / "environments" / "mine"
    alien.mkdir()
    (alien / "notes").write_text("keep")
    done = tool("prune", "--json")
    data = done.json["data"]
    assert (0, True) == (done.code, data["freed_bytes"] > 0)
    assert [names[0]] == [it["name"] for it in data["environments"] if it["removed"]]
    assert {names[1], names[2], "mine"} == {it.name for it in (tool.data / "environments").iterdir()}
    assert 0 == tool("prune").code
    assert names[1:] == [it["name"] for it in listed(tool)]


def test_prune_dry_run_touches_nothing(three):
    """--dry-run says what would go and what it would free."""
    tool, names = three
    before = snapshot(tool.home)
    data = tool("prune", "--dry-run", "--json").json["data"]
    assert [(names[0], False)] == [(it["name"], it["removed"]) for it in data["environments"] if it["would_remove"]]
    assert before == snapshot(tool.home)


def test_prune_by_name(three):
    """Only what is named goes; the current one is refused."""
    tool, names = three
    assert 2 == tool("prune", names[2]).code
    assert 12 == tool("prune", "nobody").code
    assert 0 == tool("prune", names[1]).code
    assert [names[0], names[2]] == [it["name"] for it in listed(tool)]


@pytest.mark.parametrize("how", ["program", "folder", "open file"])
def test_prune_leaves_what_a_process_uses(three, how):
    """A sleeping Python of it, a shell in it, an open file of it: each keeps an environment."""
    tool, names = three
    folder = tool.data / "environments" / names[0]
    sleep = "import sys, time; print('up', flush=True); time.sleep(60)"
    words, where, kept = [sys.executable, "-c", sleep], "/", []
    if how == "program":
        words[0] = folder / "bin/python"
    elif how == "folder":
        where = folder / "lib"
    else:
        kept = [os.open(folder / "pyvenv.cfg", os.O_RDONLY)]
    child = subprocess.Popen(words, cwd=where, pass_fds=kept, stdout=subprocess.PIPE, env={})
    try:
        assert b"up\n" == child.stdout.readline()
        for handle in kept:
            os.close(handle)
        done = tool("prune", "--json")
        (fate,) = [it for it in done.json["data"]["environments"] if it["name"] == names[0]]
        assert (False, True) == (fate["removed"], str(child.pid) in fate["why"])
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
    assert 0 == tool("prune").code
    assert not folder.exists()


def test_prune_removes_what_was_left_unfinished(three):
    """The folder of a failed build that was kept, and what a removal left, go; a stranger's hidden folder stays."""
    tool, names = three
    there = tool.data / "environments"
    (there / "half").mkdir()
    (there / ".half.building").touch()
    (there / f".{names[0]}.removing").mkdir()
    (there / ".hidden").mkdir()
    assert 0 == tool("prune").code
    assert {names[1], names[2], ".hidden"} == {it.name for it in there.iterdir()}


def test_prune_removes_what_a_cluster_left_a_day_ago(three):
    """Folders of killed agents, marks of nodes and archives of verl-env go when they are old, and only then."""
    tool, _ = three
    sent = tool.data / "self" / "cluster"
    old_mark, old_zip, old_work = sent / "seen-1", sent / "1.zip", tool.data / ".cluster-1"
    new_mark, new_zip, new_work = sent / "seen-2", sent / "2.zip", tool.data / ".cluster-2"
    for folder in (old_mark, new_mark, old_work, new_work):
        folder.mkdir(parents=True)
        (folder / "node").touch()
    for file in (old_zip, new_zip):
        file.touch()
    for old in (old_mark, old_zip, old_work):
        os.utime(old, (0, 0))
    assert 0 == tool("prune").code
    assert [False] * 3 == [it.exists() for it in (old_mark, old_zip, old_work)]
    assert [True] * 3 == [it.exists() for it in (new_mark, new_zip, new_work)]


def test_verify_says_all_is_well(three):
    """Nothing changed: exit 0, also with every hash."""
    tool, _ = three
    quick, deep = tool("verify", "--json"), tool("verify", "--deep", "--json")
    assert (0, []) == (quick.code, quick.json["data"]["faults"])
    assert (0, True) == (deep.code, deep.json["data"]["hashed"] > 10)


def test_verify_finds_missing_changed_and_extra(three):
    """Each kind is named with its file and its package, exit 1."""
    tool, _ = three
    found = module(tool)
    found.with_name("more.py").write_text("x = 1\n")
    changed = found.parents[1] / "torch" / "__init__.py"
    content = changed.read_bytes()
    changed.unlink()
    changed.write_bytes(content + b"#\n")
    found.unlink()
    done = tool("verify", "--json")
    faults = {(it["kind"], Path(it["path"]).name, it["package"]) for it in done.json["data"]["faults"]}
    assert 1 == done.code
    assert {
        ("missing", "__init__.py", "verl 99.0"),
        ("changed", "__init__.py", "torch 2.13.0"),
        ("extra", "more.py", ""),
    } == faults


def test_verify_sees_an_edit_of_the_same_size_through_a_hard_link(three):
    """An edit in place reaches uv's cache: the file there is named too."""
    tool, _ = three
    found = module(tool, "torch")
    assert found.stat().st_nlink > 1
    text = found.read_text()
    with found.open("r+") as stream:
        stream.write(text.replace("2.13.0", "2.12.0"))
    done = tool("verify", "--json")
    (fault,) = done.json["data"]["faults"]
    assert (1, "changed", "torch 2.13.0") == (done.code, fault["kind"], fault["package"])
    assert [True] == [Path(it).samefile(found) for it in fault["cached"]]


def test_verify_deep_sees_what_hides_its_time(three):
    """Same size and same time of change: only --deep finds it."""
    tool, _ = three
    found = module(tool)
    about, text = found.stat(), found.read_text()
    found.unlink()
    found.write_text(text.replace("99.0", "98.0"))
    os.utime(found, ns=(about.st_atime_ns, about.st_mtime_ns))
    assert 0 == tool("verify").code
    assert 1 == tool("verify", "--deep").code


def test_verify_takes_new_bytecode_for_what_it_is(three):
    """Bytecode of another optimisation level is no fault; bytecode without its source is."""
    tool, _ = three
    python = tool.current / "bin/python"
    subprocess.run([python, "-OO", "-c", "import verl"], check=True, env={})
    done = tool("verify", "--json")
    assert (0, True) == (done.code, done.json["data"]["caches_grown"] >= 1)
    (module(tool).parent / "__pycache__" / f"ghost.{sys.implementation.cache_tag}.pyc").write_bytes(b"")
    assert 1 == tool("verify").code


def test_verify_sees_a_lost_manifest_and_another_python(three):
    """The manifest is what everything rests on; so is the Python."""
    tool, _ = three
    python = tool.current.resolve() / "bin/python"
    target = os.readlink(python)
    python.unlink()
    python.symlink_to("/nowhere/python")
    done = tool("verify", "--json")
    assert (1, {"bin/python"}) == (done.code, {it["path"] for it in done.json["data"]["faults"]})
    python.unlink()
    python.symlink_to(target)
    assert 0 == tool("verify").code
    (tool.current.resolve() / "verl-env-manifest.txt").unlink()
    assert 1 == tool("verify").code


def test_repair_rebuilds_past_a_bad_cache(three):
    """A file that is bad in the cache too: the package is fetched anew, built in a fresh folder, made current."""
    tool, names = three
    found = module(tool, "torch")
    text = found.read_text()
    with found.open("r+") as stream:
        stream.write(text.replace("2.13.0", "2.12.0"))
    dry = tool("repair", "--dry-run", "--json")
    assert (0, False, names[2]) == (dry.code, dry.json["data"]["changed"], current(tool))
    done = tool("repair", "--json")
    assert 0 == done.code, done.err
    assert (f"{names[2]}.2", text) == (current(tool), module(tool, "torch").read_text())
    assert 0 == tool("verify", "--deep").code
    assert [None, None, f"{names[2]}.2", None] == [it["replaced_by"] for it in listed(tool)]
    again = tool("install", "--cpu", "--json")
    assert (0, False) == (again.code, again.json["data"]["changed"])
    assert 0 == tool("prune").code
    assert [names[1], f"{names[2]}.2"] == [it["name"] for it in listed(tool)]
    back = tool("rollback")  # its file is the same bad one, by hard link
    assert (6, f"{names[2]}.2") == (back.code, current(tool))


def test_repair_needs_no_network_when_the_cache_is_good(three):
    """A missing file comes back from the cache with the index gone."""
    tool, names = three
    module(tool).unlink()
    tool.index.stop()
    done = tool("repair", "--json")
    assert (0, f"{names[2]}.2") == (done.code, current(tool)), done.err


def test_repair_of_what_is_whole_does_nothing(three):
    """Nothing to repair is said, and nothing is written."""
    tool, _ = three
    before = snapshot(tool.home)
    done = tool("repair", "--json")
    assert (0, False) == (done.code, done.json["data"]["changed"])
    assert before == snapshot(tool.home)


def test_repair_of_another_than_the_current(three):
    """An environment that is not in use is rebuilt, and `current` stays."""
    tool, names = three
    (gone,) = (tool.data / "environments" / names[0]).glob("lib/python*/site-packages/verl/__init__.py")
    gone.unlink()
    done = tool("repair", names[0], "--json")
    assert (0, False, names[2]) == (done.code, done.json["data"]["switched"], current(tool)), done.err


def test_build_notices_a_damaged_cache(tiny, wheels):
    """A file cut short in uv's cache: the package is fetched anew while building, and the environment is whole."""
    assert 0 == tiny("install", "--cpu").code
    found = module(tiny, "torch")
    with found.open("r+") as stream:
        stream.truncate(3)
    extra = build_wheel(wheels["torch"].parent, "another", "1.0")
    newer_row(tiny.site, [wheels["torch"], wheels["verl"], wheels["tiny-sub"], extra], "tiny-two")
    done = tiny("install", "--cpu")
    assert 0 == done.code, done.err
    assert "damaged files of torch" in done.err
    assert '__version__ = "2.13.0"\n' == module(tiny, "torch").read_text()
    assert 0 == tiny("verify", "--deep").code
