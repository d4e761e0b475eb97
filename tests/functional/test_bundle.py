"""`bundle` and `install --bundle`: carried whole or in pieces, killed and resumed, and installed with no network."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys

import pytest

from repacked import own_wheels, without_network
from tiny import ROOT, Index, Site, Tool, build_wheel, pin_of, serve_index

BIG = "big_tiny/data.bin"
VARIED = "".join(hashlib.sha256(str(number).encode()).hexdigest() for number in range(47_000))  # 3 MB, no piece twice
HAS_NAMESPACES = subprocess.run(["unshare", "--map-root-user", "--net", "true"], check=False).returncode == 0
needs_namespace = pytest.mark.skipif(not HAS_NAMESPACES, reason="this kernel gives no network namespaces")


@pytest.fixture(scope="module")
def store(tmp_path_factory, wheels):
    """Return a folder of wheels: a row's and verl-env's own."""
    folder = tmp_path_factory.mktemp("store")
    own_wheels(folder)
    for name in ("torch", "verl", "tiny-sub"):
        shutil.copy(wheels[name], folder)
    build_wheel(folder, "big-tiny", "1.0", files={"big_tiny/__init__.py": "", BIG: VARIED})
    return folder


@pytest.fixture(scope="module")
def frozen(tmp_path_factory):
    """Return a copy of verl-env: a bundle holds it, and a checkout that is worked in changes between two bundles."""
    folder = tmp_path_factory.mktemp("frozen")
    without = shutil.ignore_patterns("__pycache__")
    for name in ("installer", "matrices"):
        shutil.copytree(ROOT / name, folder / name, ignore=without)
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


@pytest.fixture
def maker(tmp_path, store, wheels, frozen):
    """Return verl-env where the bundle is made, with an index of everything."""
    site = Site(folder=tmp_path / "site")
    big = next(store.glob("big_tiny*"))
    site.add_row("tiny", [*(store / wheels[name].name for name in ("torch", "verl", "tiny-sub")), big])
    tool = Tool(home=tmp_path / "maker", work=tmp_path / "work", site=site)
    tool.home.mkdir()
    tool.work.mkdir()
    search = os.pathsep.join(filter(None, (str(frozen / "installer"), os.environ.get("PYTHONPATH"))))
    tool.environ["PYTHONPATH"] = search
    tool.index = serve_index(Index(folder=store, ranges=True))
    yield tool
    tool.index.stop()


@pytest.fixture
def target(tmp_path):
    """Return verl-env on another node: no index, no matrix of a site."""
    tool = Tool(home=tmp_path / "target", work=tmp_path / "carried")
    tool.home.mkdir()
    tool.work.mkdir()
    return tool


def made(maker, target, *words, name="b.tar"):
    """Make a bundle in the target's folder and return what was said of it."""
    done = maker("bundle", "tiny", "-o", target.work / name, "--json", *words)
    assert 0 == done.code, done.err
    return json.loads(done.out)["data"]


def offline(target, *words):
    """Run the target's verl-env with no network at all."""
    child = subprocess.run(
        without_network([sys.executable, "-m", "verl_env", *words]),
        env=target.variables(),
        cwd=target.work,
        capture_output=True,
        text=True,
        check=False,
    )
    return child.returncode, child.stdout, child.stderr


@needs_namespace
@pytest.mark.parametrize(
    ("words", "name"),
    [
        pytest.param((), "b.tar", id="one file"),
        pytest.param((), "b.tar.zst", id="framed as zstd"),
        pytest.param(("--split", "1M"), "b.tar", id="in pieces"),
    ],
)
def test_installs_with_no_network(maker, target, words, name):
    """The same lock gives the same environment, from a bundle alone, in a namespace without interfaces."""
    said = made(maker, target, *words, name=name)
    first = target.work / said["files"][0]
    code, _, err = offline(target, "install", "--bundle", first, "--cpu")
    assert 0 == code, err
    assert 0 == maker("install", "--cpu", "--row", "tiny").code
    here, there = (json.loads((it.current / "verl-env-receipt.json").read_text()) for it in (maker, target))
    lock = "pylock.tiny.toml"
    same = ("lock_digest", "name", "packages", "files", "set")
    assert {key: here[key] for key in same} == {key: there[key] for key in same}
    assert (said["digest"], False) == (there["lock_digest"], (target.data / "bundles").exists())
    assert (maker.current / lock).read_text() == (target.current / lock).read_text()


@needs_namespace
def test_starts_on_a_node_with_nothing(maker, target):
    """`start.sh` out of the bundle brings verl-env and uv, and installs; a second run finds all of it there."""
    made(maker, target)
    words = "tar -xOf b.tar start.sh >start.sh && sh start.sh b.tar --cpu"
    bare = {"HOME": str(target.home), "PATH": target.variables()["PATH"]}
    for said in ("is ready", "is already there"):
        child = subprocess.run(
            without_network(["sh", "-c", words]), env=bare, cwd=target.work, capture_output=True, text=True, check=False
        )
        assert (0, True) == (child.returncode, said in child.stdout), child.stderr
    launcher = target.home / ".local/bin/verl-env"
    listed = subprocess.run([launcher, "list", "--json"], env=bare, capture_output=True, text=True, check=True)
    assert ["tiny"] == [it["row"] for it in json.loads(listed.stdout)["data"]["environments"]]
    assert [] == [it.name for it in (target.data / "self").iterdir() if it.name.startswith(".")]


def test_start_refuses_a_changed_tool(maker, target):
    """A verl-env that was changed on its way is not started, and nothing of it stays."""
    made(maker, target)
    data = (target.work / "b.tar").read_bytes()
    at = data.index(b"cattrs", data.index(b"tool/cattrs") + 600)
    (target.work / "b.tar").write_bytes(data[:at] + b"C" + data[at + 1 :])
    words = "tar -xOf b.tar start.sh >start.sh && sh start.sh b.tar --cpu"
    bare = {"HOME": str(target.home), "PATH": target.variables()["PATH"]}
    child = subprocess.run(["sh", "-c", words], env=bare, cwd=target.work, capture_output=True, text=True, check=False)
    assert (6, True) == (child.returncode, "not the one that was put there" in child.stderr), child.stderr
    assert [] == list((target.data / "self" / "tool").iterdir())


def test_killed_and_gone_on(maker, target):
    """Killed in the middle of a wheel, the same command asks for the rest of it and gives the same bytes."""
    whole = (target.work / made(maker, target)["files"][0]).read_bytes()
    (target.work / "b.tar").unlink()
    maker.index.gated = "verl"
    child = maker.start("bundle", "tiny", "-o", target.work / "b.tar")
    maker.index.waiting.wait()
    child.send_signal(signal.SIGKILL)
    child.communicate()
    part = target.work / "b.tar.part"
    kept = part.stat().st_size
    part.write_bytes(part.read_bytes()[: kept - 1_000_000])  # in the middle of the wheel before
    maker.index.gate.set()
    done = maker("bundle", "tiny", "-o", target.work / "b.tar")
    assert (0, True) == (done.code, "going on after" in done.err), done.err
    assert whole == (target.work / "b.tar").read_bytes()


@pytest.mark.parametrize(
    ("words", "name"),
    [
        pytest.param((), "b.tar", id="one file"),
        pytest.param((), "b.tar.zst", id="framed as zstd"),
        pytest.param(("--split", "1M"), "b.tar", id="in pieces"),
    ],
)
def test_what_both_need_is_fetched_once(maker, target, store, words, name):
    """A package that verl-env needs and the row has lies in both places, and was asked for once."""
    shared = next(store.glob("Pygments*"))
    named = [next(store.glob(it)) for it in ("torch*", "verl-*", "tiny_sub*")]
    maker.site.add_row("tiny", [*named, shared])
    said = made(maker, target, *words, name=name)
    last = max(number for number, path in enumerate(maker.index.asked) if path.startswith("/simple/"))
    assert 1 == maker.index.asked[last:].count(f"/files/{shared.name}")
    first = target.work / said["files"][0]
    done = target("install", "--bundle", first, "--cpu")
    assert 0 == done.code, done.err


def test_finished_is_not_fetched_again(maker, target):
    """A bundle that is there already is left as it is."""
    made(maker, target)
    before = (target.work / "b.tar").stat()
    made(maker, target)
    after = (target.work / "b.tar").stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


def test_another_file_under_the_name_is_refused(maker, target, store, tmp_path):
    """An index that says one hash and sends other bytes is found out, and what is right stays for the next run."""
    other = tmp_path / "other"
    shutil.copytree(store, other)
    maker.index.stop()
    maker.index = serve_index(Index(folder=other, ranges=True))
    verl = next(other.glob("verl-99*"))
    maker.index.hashes[verl.name] = pin_of(verl).sha256
    verl.write_bytes(verl.read_bytes().replace(b"99.0", b"98.0"))
    done = maker("bundle", "tiny", "-o", target.work / "b.tar")
    maker.index.stop()
    assert (10, True) == (done.code, "is another file than the lock names" in done.err), done.err
    assert ["b.tar.part"] == [it.name for it in target.work.iterdir() if not it.name.startswith(".")]


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        pytest.param(
            lambda folder: (folder / "b.tar.002").unlink(), "pieces are missing: b.tar.002", id="a piece gone"
        ),
        pytest.param(
            lambda folder: (folder / "b.tar.003").write_bytes((folder / "b.tar.003").read_bytes()[:-1]),
            "is not whole",
            id="a piece cut",
        ),
        pytest.param(
            lambda folder: shutil.copy(*sorted(folder.glob("b.tar.*"))[-3:-1]),
            "b.tar",
            id="a piece twice",
        ),
    ],
)
def test_damaged_pieces_install_nothing(maker, target, damage, said):
    """What did not arrive as it was sent is refused by name, before anything is built."""
    made(maker, target, "--split", "1M")
    damage(target.work)
    done = target("install", "--bundle", target.work / "b.tar.001", "--cpu")
    assert (10, True) == (done.code, said in done.err), done.err
    assert [] == sorted((target.data / "environments").glob("*"))


def test_left_out_is_asked_for(maker, target):
    """What `--minus` leaves out must be on the target, and is named when it is not."""
    freeze = target.work / "freeze.txt"
    freeze.write_text("tiny.sub==1.2\nTorch==2.12.0\nverl @ file:///x\n")
    said = made(maker, target, "--minus", freeze)
    assert ["tiny-sub 1.2"] == said["left_out"]
    done = target("install", "--bundle", target.work / "b.tar", "--cpu")
    assert (11, True) == (done.code, "leaves out 1 packages that are not here: tiny-sub 1.2" in done.err), done.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param(("-o", "b.zip"), "does not say what the bundle is", id="another kind of file"),
        pytest.param(("-o", "b.tar", "--split", "12"), "is no size", id="pieces of a few bytes"),
        pytest.param(("-o", "b.tar", "--minus", "nobody"), "no environment", id="minus what is not there"),
    ],
)
def test_bad_arguments(maker, words, said):
    """What cannot be meant is refused before anything is fetched."""
    done = maker("bundle", "tiny", *words)
    assert (True, []) == (said in done.err, list(maker.work.iterdir())), done.err


def test_dry_run_writes_nothing(maker, target):
    """`--dry-run` says what would be carried."""
    said = made(maker, target, "--dry-run")
    assert (False, [], []) == (said["changed"], said["files"], list(target.work.iterdir()))


def test_no_credentials_in_a_bundle(maker, target, store):
    """An index's login is used and written nowhere: not in the bundle, not on a screen, not in a log."""
    maker.index.stop()
    maker.index = serve_index(Index(folder=store, ranges=True, login="reader:s3cret-word"))
    done = maker("bundle", "tiny", "-o", target.work / "b.tar", "-v")
    maker.index.stop()
    assert 0 == done.code, done.err
    written = b"".join(it.read_bytes() for it in target.work.rglob("*") if it.is_file())
    written += b"".join(it.read_bytes() for it in maker.data.rglob("*") if it.is_file() and not it.is_symlink())
    assert (False, False) == (b"s3cret-word" in written, "s3cret-word" in done.out + done.err)


@pytest.mark.skipif(not shutil.which("zstd"), reason="zstd is not here")
def test_zstd_takes_it(maker, target):
    """The reference program reads `.tar.zst` and finds the tar in it."""
    made(maker, target, name="b.tar.zst")
    made(maker, target, name="b.tar")
    plain = subprocess.run(["zstd", "-dc", target.work / "b.tar.zst"], capture_output=True, check=True).stdout
    assert (target.work / "b.tar").read_bytes() == plain
