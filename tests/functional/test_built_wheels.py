"""A built wheel in use: `install` takes it, locks and bundles carry it, and what does not suit is passed over aloud."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from compiled import DRIVER, LABEL, build, can_compile, make_world, wheels_of
from repacked import own_wheels
from tiny import MINOR
from verl_env.lock.read import read_lock

pytestmark = pytest.mark.skipif(not can_compile, reason="no C compiler, or no Python.h, is here")
LOCK = "pylock.tiny.toml"
H200 = (*DRIVER, "--gpu", "h200")


@pytest.fixture
def world(tmp_path, serve):
    """Return verl-env with a row that names a build, installed."""
    return make_world(tmp_path, serve)


def install(tool, *words):
    done = tool("install", *(words or ("--row", "tiny", "--python", MINOR, *H200)))
    assert 0 == done.code, done.err
    return done


def answer_of(tool) -> str:
    done = tool("run", "--", "python", "-c", "import torch, tiny_ext; print(tiny_ext.answer)")
    assert 0 == done.code, done.err
    return done.out.strip()


def test_install_offers_and_then_uses_it(world):
    """Without a wheel: the path, its settings, and the build; with one: a new environment that has it, by hash."""
    done = install(world)
    assert "attention: sdpa; verl needs these settings with this row:\n  a=sdpa" in done.out
    assert "compile tiny-ext 1.5 once (it takes a while): verl-env build tiny-ext --row tiny" in done.out
    plain = world.current.resolve()
    assert [] == wheels_of(world)
    assert 0 == build(world).code
    done = install(world)
    assert f"tiny-ext 1.5+{LABEL} is used, built for 9.0" in done.err
    assert "attention: flash_attention_2, which verl takes without any setting" in done.out
    assert (True, "42") == (world.current.resolve() != plain, answer_of(world))
    receipt = json.loads((world.current / "verl-env-receipt.json").read_text())
    assert (("verl", "tiny_ext"), []) == (tuple(receipt["imports"]), receipt["settings"])
    lock = read_lock(world.current / LOCK)
    (said,) = lock.table.built
    assert (("tiny-ext", "built", ("9.0",)), ("tiny-ext",)) == (
        (said.package, said.origin, said.architectures),
        lock.table.added,
    )
    again = install(world).out
    assert (True, True) == ("is already there, and current" in again, "attention: flash_attention_2" in again)
    assert 0 == world("verify").code


def test_it_can_be_left_out(world):
    """`--without-built` gives the row's own environment."""
    plain = world.current.resolve()
    assert 0 == build(world).code
    done = install(world, "--row", "tiny", "--python", MINOR, "--without-built", *H200)
    assert (plain, True) == (world.current.resolve(), "attention: sdpa" in done.out)


def test_another_gpu_is_said(world):
    """A wheel without code for a GPU that is here is passed over, with both sides named."""
    assert 0 == build(world).code
    done = install(world, "--row", "tiny", "--python", MINOR, *DRIVER, "--gpu", "a100")
    assert "is not used: it is compiled for 9.0, and a GPU here is 8.0" in done.err
    assert "attention: sdpa" in done.out


def test_a_wheel_of_another_torch_is_said(world):
    """A wheel that was compiled against another torch is passed over."""
    assert 0 == build(world).code
    (wheel,) = wheels_of(world)
    record = wheel.parent / "record.json"
    record.write_text(record.read_text().replace("2.11.0+cu130", "2.10.0+cu130"))
    done = install(world)
    assert "it was compiled for torch 2.10.0+cu130, and this is torch 2.11.0" in done.err


def test_a_changed_wheel_is_refused(world):
    """A wheel that was changed in the wheelhouse is not installed, and nothing becomes current."""
    assert 0 == build(world).code
    (wheel,) = wheels_of(world)
    wheel.write_bytes(wheel.read_bytes() + b"\0")
    plain = world.current.resolve()
    done = world("install", "--row", "tiny", "--python", MINOR, *H200)
    assert (6, True, plain) == (
        done.code,
        "was changed after it was stored" in done.err,
        world.current.resolve(),
    ), done.err


def test_a_lock_carries_it(world):
    """`lock --with-built` pins it; the digest covers it, `--check` knows it, and the file installs."""
    assert 0 == build(world).code
    words = ["lock", "--row", "tiny", "--python", MINOR, *H200]
    assert 0 == world(*words).code
    plain = read_lock(world.work / LOCK)
    assert 0 == world(*words, "--with-built").code
    lock = read_lock(world.work / LOCK)
    assert ((), True) == (plain.table.built, plain.table.digest != lock.table.digest)
    assert f"1.5+{LABEL}" == {pin.name: pin.version for pin in lock.pins}["tiny-ext"]
    assert 0 == world("lock", "--check").code
    install(world, LOCK, *H200)
    assert "42" == answer_of(world)
    text = (world.work / LOCK).read_text()
    key = lock.table.built[0].key
    (world.work / LOCK).write_text(text.replace(key, key[::-1]))
    assert 10 == world("install", LOCK, *H200).code


def test_a_lock_whose_wheel_is_not_here(world):
    """Where nobody built it, the lock names what to do."""
    assert 0 == build(world).code
    assert 0 == world("lock", "--row", "tiny", "--python", MINOR, "--with-built", *H200).code
    shutil.rmtree(world.data / "wheelhouse")
    done = world("install", LOCK, *H200)
    assert (5, True) == (done.code, "verl-env build tiny-ext" in done.err), done.err


def test_a_shared_wheelhouse(world, tmp_path):
    """Another home finds the wheel through VERL_ENV_WHEELHOUSE."""
    assert 0 == build(world).code
    shutil.copytree(world.data / "wheelhouse", tmp_path / "shared")
    world.home = tmp_path / "other"
    world.home.mkdir()
    world.environ["VERL_ENV_WHEELHOUSE"] = str(tmp_path / "shared")
    install(world)
    assert "42" == answer_of(world)


def test_repair_uses_it(world):
    """A damaged environment is built again with the same wheel."""
    assert 0 == build(world).code
    install(world)
    (module,) = world.current.glob("lib/python*/site-packages/tiny_ext*.so")
    module.unlink()
    done = world("repair")
    assert (0, "42") == (done.code, answer_of(world)), done.err


def test_a_bundle_carries_it(world, tmp_path):
    """A bundle of the row has the wheel and its record: the node that it goes to compiles nothing, and has it then."""
    assert 0 == build(world).code
    own_wheels(world.index.folder)
    done = world("bundle", "tiny", "--python", MINOR, *H200, "-o", tmp_path / "b.tar")
    assert 0 == done.code, done.err
    made = wheels_of(world)
    world.home = tmp_path / "other"
    world.home.mkdir()
    world.index.stop()
    (wheel,) = made
    install(world, "--bundle", tmp_path / "b.tar", *H200)
    assert "42" == answer_of(world)
    assert [(wheel.parent.name, wheel.name)] == [(it.parent.name, it.name) for it in wheels_of(world)]
    again = build(world, "--json")
    assert (0, False) == (again.code, again.json["data"]["changed"]), again.err


def test_on_top_of_a_bundle(world, tmp_path):
    """`install --bundle … --with-built` adds what was built on the node itself; no index is asked."""
    own_wheels(world.index.folder)
    done = world("bundle", "tiny", "--python", MINOR, *H200, "-o", tmp_path / "b.tar")
    assert 0 == done.code, done.err
    assert 0 == build(world).code
    world.index.stop()
    install(world, "--bundle", tmp_path / "b.tar", "--with-built", *H200)
    assert "42" == answer_of(world)


def proved_on(tool, device, tmp_path):
    """Return a copy of the current receipt that says what was shown on a GPU."""
    receipt = json.loads((tool.current / "verl-env-receipt.json").read_text())
    shown = [
        {"level": "kernel", "name": "flash_attn_dense", "seconds": 1.0, "said": "off by 1e-3", "skipped": False},
        {"level": "imports", "name": "verl", "seconds": 1.0, "said": "", "skipped": False},
    ]
    receipt["later"] = [
        {"level": "kernel", "device": device, "host": "node-17", "when": "2026-12-01T00:00:00+00:00", "shown": shown}
    ]
    path = tmp_path / receipt["name"] / "receipt.json"
    path.parent.mkdir()
    shutil.copy(tool.current / LOCK, path.parent)
    path.write_text(json.dumps(receipt))
    return path


def test_the_matrix_takes_a_build(world, tmp_path):
    """A record, and what its wheel showed, become a file of the matrix, which `show` and `check` know; no host is in it."""
    plain = proved_on(world, "an H200", tmp_path)
    assert 0 == build(world).code
    record = wheels_of(world)[0].parent / "record.json"
    install(world)
    words = ["matrix", "import-build", record, "--row", "tiny"]
    refused = world(*words, "--receipt", plain)
    assert (9, True) == (refused.code, "not of an environment of this row with this wheel" in refused.err), refused.err
    done = world(*words, "--receipt", proved_on(world, "an H200", tmp_path), "--json")
    assert 0 == done.code, done.err
    kept = json.loads(Path(done.json["data"]["file"]).read_text())
    assert [
        {"device": "an H200", "when": "2026-12-01T00:00:00+00:00", "checks": {"flash_attn_dense": "off by 1e-3"}}
    ] == kept["shown"]
    assert "node-17" not in json.dumps(kept)
    shown = world("matrix", "show", "tiny").out
    assert ("flash_attn_dense: off by 1e-3" in shown, "3 files in " in shown) == (True, True), shown
    assert 0 == world("matrix", "check").code
    changed = json.dumps(kept).replace("13.0.88", "13.0.48")
    Path(done.json["data"]["file"]).write_text(changed)
    checked = world("matrix", "check")
    assert (9, True) == (checked.code, "key: its inputs give" in checked.err), checked.err
    record.write_text(record.read_text().replace('"kind": "built"', '"kind": "adopted"'))
    assert 9 == world(*words).code
