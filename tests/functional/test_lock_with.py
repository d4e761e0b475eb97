"""`verl-env lock --with`, `-r`, `--upgrade-package`, `--resolve`: on top of the row's pins, which do not move."""

from __future__ import annotations

import io
import tarfile

import pytest

from tiny import build_wheel, pin_of, sha256_of
from verl_env import toml
from verl_env.lock.read import read_lock

LOCK = "pylock.tiny.toml"
RESOLVE = """
[resolve]
requirements = ["verl"]
constraints = [{ spec = "tiny-sub<1.3", why = "1.3 is another one" }]
glibc = "2.28"
"""


@pytest.fixture
def shop(tiny, tmp_path, serve, wheels):
    """Return verl-env with an index of its own, which also has packages that no row pins."""
    folder = tmp_path / "shop"
    folder.mkdir()
    for name in ("torch", "verl", "tiny-sub"):
        (folder / wheels[name].name).hardlink_to(wheels[name])
    build_wheel(folder, "peft", "0.13", requires=["torch", "leaf>=1"])
    build_wheel(folder, "peft", "0.14", requires=["torch", "leaf>=1"])
    build_wheel(folder, "peft", "0.15rc1", requires=["torch"])
    build_wheel(folder, "leaf", "1.0")
    build_wheel(folder, "picky", "1.0", requires=["torch<2"])
    build_wheel(folder, "tiny-sub", "1.2.5")
    build_wheel(folder, "tiny-sub", "1.3")
    build_wheel(folder, "verl", "99.5", requires=["torch", "tiny-sub>=1.2.5"])
    tiny.index = serve(folder)
    return tiny


def versions(tool, name=LOCK):
    """Return the locked versions by name."""
    return {pin.name: pin.version for pin in read_lock(tool.work / name).pins}


BASE = {"torch": "2.13.0", "verl": "99.0", "tiny-sub": "1.2"}


def test_with(shop):
    """A wish brings its closure; the pins do not move, and the lock says what was added and asked for."""
    done = shop("lock", "--cpu", "--with", "peft>=0.13", "--json")
    assert 0 == done.code, done.err
    assert BASE | {"peft": "0.14", "leaf": "1.0"} == versions(shop)
    table = read_lock(shop.work / LOCK).table
    assert (("leaf", "peft"), ("peft>=0.13",), None) == (table.added, table.asked.wishes, table.unproven)
    assert ["leaf", "peft"] == done.json["data"]["added"]
    path = next(it for it in shop.index.folder.iterdir() if it.name.startswith("peft-0.14"))
    assert sha256_of(path) in (shop.work / LOCK).read_text()


def test_an_older_release_is_said(shop):
    """A wish whose newest release does not go with the pins gets an older one, and that is said."""
    build_wheel(shop.index.folder, "leaf", "2.0", requires=["torch<2"])
    done = shop("lock", "--cpu", "--with", "leaf")
    assert (0, "1.0") == (done.code, versions(shop)["leaf"]), done.err
    assert "leaf 1.0 was taken, because 2.0 does not go with the pins" in done.err


def test_check_needs_no_arguments(shop):
    """A lock with wishes is checked with what its table records: no argument, no index."""
    assert 0 == shop("lock", "--cpu", "--with", "peft>=0.13").code
    shop.index.stop()
    assert 0 == shop("lock", "--check").code
    assert 0 == shop("lock", "--check", "--with", "peft>=0.13").code
    done = shop("lock", "--check", "--with", "peft>=0.15")
    assert (1, True) == (done.code, "`peft>=0.15` (--with): peft is 0.14" in done.out)


def test_what_nothing_brings_is_a_difference(shop):
    """A package that was written into such a lock by hand is not taken for one of its wishes'."""
    assert 0 == shop("lock", "--cpu", "--with", "peft>=0.13").code
    text = (shop.work / LOCK).read_text()
    extra = text[text.index('[[packages]]\nname = "leaf"') : text.index('[[packages]]\nname = "peft"')]
    (shop.work / LOCK).write_text(text.replace(extra, extra + extra.replace("leaf", "loaf"), 1))
    done = shop("lock", "--check")
    assert (1, True) == (done.code, "loaf 1.0 is in the file, and nothing asks for it" in done.out)


def test_requirements_file(shop):
    """-r reads a file, and --check reads it again: a line that came later is a difference."""
    (shop.work / "extra.txt").write_text("peft<0.14  # an older one\n-c limits.txt\n")
    (shop.work / "limits.txt").write_text("leaf<2\n")
    assert 0 == shop("lock", "--cpu", "-r", "extra.txt").code
    assert "0.13" == versions(shop)["peft"]
    table = toml.loads((shop.work / LOCK).read_text())["tool"]["verl-env"]
    assert [{"name": "extra.txt", "lines": ["peft<0.14", "-c leaf<2"]}] == table["asked"]["files"]
    assert 0 == shop("lock", "--check").code
    (shop.work / "extra.txt").write_text("peft<0.14\nlm-eval\n")
    done = shop("lock", "--check")
    assert (1, True) == (done.code, "`lm-eval` (extra.txt): lm-eval is not among the packages" in done.out)
    (shop.work / "extra.txt").unlink()
    done = shop("lock", "--check")
    assert (0, True) == (done.code, "extra.txt is not here" in done.err)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param(
            ["--with", "torch<2.13"],
            ["`torch<2.13` (--with): torch is 2.13.0, which row tiny pins", "--upgrade-package torch"],
            id="a pin and a wish",
        ),
        pytest.param(
            ["--with", "picky"],
            ["pin: torch 2.13.0 (row tiny)", "`picky` (--with)", "--upgrade-package torch"],
            id="a pin and what a wish brings",
        ),
        pytest.param(["--with", "nowhere"], ["nowhere was not found"], id="no such package"),
        pytest.param(["--with", "peft==9"], ["peft==9"], id="no such version"),
        pytest.param(["--with", "peft", "--with", "leaf>1"], ["leaf"], id="two wishes"),
    ],
)
def test_clashes(shop, words, said):
    """A clash is refused with the pin, the wish and the way out; no file is left."""
    done = shop("lock", "--cpu", *words)
    assert (5, []) == (done.code, [it.name for it in shop.work.iterdir()])
    for line in said:
        assert line in done.err, done.err


def test_what_is_published_as_source_only(shop):
    """A package without a wheel is named, with what to do: nothing is built from source unseen."""
    with tarfile.open(shop.index.folder / "stone-1.0.tar.gz", "w:gz") as archive:
        text = b"Metadata-Version: 2.1\nName: stone\nVersion: 1.0\n"
        about = tarfile.TarInfo("stone-1.0/PKG-INFO")
        about.size = len(text)
        archive.addfile(about, io.BytesIO(text))
    done = shop("lock", "--cpu", "--with", "stone")
    assert (5, True) == (done.code, "hint: stone: only source is published" in done.err), done.err


def test_pre_releases_only_when_asked(shop):
    """A pre-release is taken only when a wish names one."""
    assert 0 == shop("lock", "--cpu", "--with", "peft>=0.15rc1").code
    assert "0.15rc1" == versions(shop)["peft"]


def test_wish_that_is_there_already(shop):
    """A wish that the row meets changes no package, asks no index, and is recorded."""
    asked = len(shop.index.asked)
    done = shop("lock", "--cpu", "--with", "torch>=2", "--dry-run", "--json")
    assert (0, asked, 3) == (done.code, len(shop.index.asked), done.json["data"]["packages"])


def test_hashes_in_the_file(shop):
    """A hash in a requirements file is held against the file that was pinned."""
    path = next(it for it in shop.index.folder.iterdir() if it.name.startswith("leaf"))
    (shop.work / "good.txt").write_text(f"leaf==1.0 --hash=sha256:{sha256_of(path)}\n")
    (shop.work / "bad.txt").write_text(f"leaf==1.0 --hash=sha256:{'0' * 64}\n")
    assert 0 == shop("lock", "--cpu", "-r", "good.txt").code
    done = shop("lock", "--cpu", "-r", "bad.txt", "-o", "pylock.bad.toml")
    assert (5, False) == (done.code, (shop.work / "pylock.bad.toml").exists()), done.err
    assert sha256_of(path) in done.err


def test_upgrade_package(shop):
    """A pin that is let go moves alone, suits those that stay, and the lock says that it is not proved."""
    done = shop("lock", "--cpu", "--upgrade-package", "tiny-sub<1.3", "--json")
    assert 0 == done.code, done.err
    assert BASE | {"tiny-sub": "1.2.5"} == versions(shop)
    table = read_lock(shop.work / LOCK).table
    assert ({"tiny-sub": "1.2"}, "packages were moved from the row's pins") == (table.moved, table.unproven)
    assert "1.2.5" == table.set["tiny-sub"]
    assert 0 == shop("lock", "--check").code


def test_upgrade_of_what_is_not_pinned(shop):
    """Only what the row pins can be let go."""
    done = shop("lock", "--cpu", "--upgrade-package", "peft")
    assert (2, True) == (done.code, "--with peft" in done.err)


def test_resolve(shop):
    """--resolve takes nothing from the pins, keeps to the row's constraints, and says that nothing is proved."""
    row = shop.site.folder / "rows/tiny.toml"
    row.write_text(row.read_text().replace("[exports]", RESOLVE + "[exports]"))
    done = shop("lock", "--cpu", "--resolve", "--with", "leaf")
    assert 0 == done.code, done.err
    assert {"torch": "2.13.0", "verl": "99.5", "tiny-sub": "1.2.5", "leaf": "1.0"} == versions(shop)
    assert "the row was resolved afresh, not taken from its pins" == read_lock(shop.work / LOCK).table.unproven
    assert "unproven" in done.err
    shop.index.stop()
    assert 0 == shop("lock", "--check").code


def test_an_override_cannot_break_a_wish(shop):
    """Uv takes a wish that an override of the row breaks; verl-env holds it against the result."""
    row = shop.site.folder / "rows/tiny.toml"
    override = RESOLVE + 'overrides = [{ spec = "leaf==1.0", why = "the only one that works" }]\n'
    row.write_text(row.read_text().replace("[exports]", override + "[exports]"))
    done = shop("lock", "--cpu", "--with", "leaf>=2", "--with", "peft")
    assert (5, True) == (done.code, "`leaf>=2` (--with): leaf is 1.0" in done.err), done.err


def test_an_index_that_states_no_sizes(shop, serve):
    """Where an index states no size, the server of the file is asked; the pin is the same."""
    assert 0 == shop("lock", "--cpu", "--with", "peft").code
    one = read_lock(shop.work / LOCK)
    shop.index = serve(shop.index.folder, html=True)
    assert 0 == shop("lock", "--cpu", "--with", "peft").code
    assert one == read_lock(shop.work / LOCK).__class__(
        table=read_lock(shop.work / LOCK).table, pins=read_lock(shop.work / LOCK).pins, urls=one.urls
    )


def test_a_name_in_two_indexes(shop, serve, tmp_path):
    """A package of the first index's name is not taken from another: anybody could publish a higher version there."""
    mine = tmp_path / "mine"
    build_wheel(mine, "leaf", "0.5")
    inner = serve(mine)
    done = shop("lock", "--cpu", "--with", "peft", UV_INDEX=inner.url)
    assert (5, True) == (done.code, "`leaf` is in more than one index, and the first one does not have 1.0" in done.err)
    assert 0 == shop("lock", "--cpu", "--with", "peft", UV_INDEX=inner.url, UV_INDEX_STRATEGY="unsafe-best-match").code
    build_wheel(mine, "house", "1")
    done = shop("lock", "--cpu", "--with", "house", UV_INDEX=inner.url, UV_INDEX_STRATEGY="")
    assert (0, "1") == (done.code, versions(shop)["house"]), done.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param(["--with", "peft @ https://me:secret@index.example/peft.whl"], "by URL", id="URL"),
        pytest.param(["-r", "none.txt"], "cannot be read", id="missing file"),
        pytest.param(["-r", "."], "cannot be read", id="a folder"),
        pytest.param(["--exclude-newer", "2026-01-01"], "for what is resolved", id="a day for nothing"),
        pytest.param(["--exclude-newer", "yesterday", "--with", "peft"], "not a date", id="no date"),
        pytest.param(["--allow", "nvcc-minr"], "did you mean `nvcc-minor`?", id="no such rule"),
        pytest.param(["pylock.toml"], "-o pylock.toml", id="a lock without --check"),
        pytest.param(["--editable", "nowhere"], "no folder", id="no checkout"),
    ],
)
def test_usage(shop, words, said):
    """What cannot be meant is a usage error with a hint, before any index is asked; no secret is repeated."""
    done = shop("lock", "--cpu", *words)
    assert (2, True) == (done.code, said in done.err), done.err
    assert ("secret" in done.err, shop.index.asked) == (False, [])


def test_an_incoherent_wish_is_refused(shop):
    """A wish that breaks a rule is not written; with --allow it is, and the lock says so."""
    build_wheel(shop.index.folder, "nvidia-cuda-runtime-cu12", "12.9.79")
    build_wheel(shop.index.folder, "nvidia-cublas", "13.0.2.14")
    words = ["lock", "--cpu", "--with", "nvidia-cuda-runtime-cu12", "--with", "nvidia-cublas"]
    done = shop(*words)
    assert (10, [], True) == (done.code, [it.name for it in shop.work.iterdir()], "[two-cuda-majors]" in done.err), (
        done.err
    )
    rules = [word for it in done.err.rsplit("--allow ")[1:] for word in ("--allow", it.split()[0])]
    assert 0 == shop(*words, *rules).code
    assert tuple(sorted(rules[1::2])) == read_lock(shop.work / LOCK).table.allow
    assert 0 == shop("lock", "--check").code


def test_pins_are_untouched(shop, wheels):
    """The files of the row's own packages are the row's, hash by hash."""
    assert 0 == shop("lock", "--cpu", "--with", "peft").code
    locked = {pin.name: pin for pin in read_lock(shop.work / LOCK).pins}
    assert [pin_of(wheels[name]) for name in BASE] == [locked[name] for name in BASE]
