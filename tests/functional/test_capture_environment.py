"""An environment becomes a lock, and the lock becomes that environment elsewhere."""

from __future__ import annotations

import pytest

from teammate import add, edit, elsewhere, git, site_of
from tiny import build_wheel
from verl_env.lock.read import read_lock


@pytest.fixture
def installed(tiny, wheels):
    """Return an installed environment of the row `tiny`."""
    build_wheel(wheels["torch"].parent, "extra-thing", "1.0")
    assert tiny("install", "--cpu").code == 0
    return tiny.current.resolve()


def test_the_lock_of_an_untouched_environment_is_its_rows(tiny, installed):
    """What was installed from a row and left alone is captured as that row's lock."""
    done = tiny("capture", installed, "--json", "-o", "pylock.toml")
    assert done.code == 0, done.err
    assert ("tiny", [], []) == (done.json["data"]["nearest"], done.json["data"]["differences"],
                                done.json["data"]["unavailable"])  # fmt: skip
    assert read_lock(tiny.work / "pylock.toml").table.row == "tiny"
    assert {"hash"} == {it["sure"] for it in done.json["data"]["packages"]}


def test_a_patched_environment_comes_back_with_its_patch(tiny, installed, tmp_path):
    """Patch one file, add one package, capture, install elsewhere: nothing differs."""
    edit(site_of(installed) / "verl" / "__init__.py", '__version__ = "99.0"\nPATCHED = 1\n')
    add(installed, tiny, "extra-thing")
    done = tiny("capture", installed, "--with-patches", "-o", "pylock.captured.toml")
    assert done.code == 0, done.err
    assert "edited: verl: verl/__init__.py" in done.out
    other = elsewhere(tiny, tmp_path)
    built = other("install", tiny.work / "pylock.captured.toml", "--json")
    assert built.code == 0, built.err
    assert "patched: verl/__init__.py" in built.err
    same = other("diff", installed, other.current.resolve())
    assert (0, True) == (same.code, same.out.endswith("the same\n")), same.out
    assert "PATCHED = 1" in (site_of(other.current.resolve()) / "verl" / "__init__.py").read_text()
    assert other("verify").code == 0


def test_without_patches_only_the_patch_differs(tiny, installed, tmp_path):
    """The lock without the patch gives all but the edit."""
    edit(site_of(installed) / "verl" / "__init__.py", "PATCHED = 1\n")
    assert tiny("capture", installed, "-o", "pylock.captured.toml").code == 0
    other = elsewhere(tiny, tmp_path)
    assert other("install", tiny.work / "pylock.captured.toml").code == 0
    done = other("diff", installed, other.current.resolve(), "--json")
    assert 1 == done.code
    assert [("files", "verl: verl/__init__.py")] == [
        (it["group"], it["name"]) for it in done.json["data"]["differences"]
    ]


def test_a_patch_leaves_the_cache_and_its_other_environments_alone(tiny, installed, wheels):
    """Files are hard links into the cache: the patched one is a new file, and the row's environment stays as it is."""
    edit(site_of(installed) / "verl" / "__init__.py", "PATCHED = 1\n")
    assert tiny("capture", installed, "--with-patches", "-o", "pylock.captured.toml").code == 0
    edit(site_of(installed) / "verl" / "__init__.py", '__version__ = "99.0"\n')
    assert tiny("install", "pylock.captured.toml").code == 0
    assert "PATCHED = 1\n" == (site_of(tiny.current.resolve()) / "verl" / "__init__.py").read_text()
    tiny.site.add_row("twin", [wheels["torch"], wheels["verl"], wheels["tiny-sub"]])
    assert tiny("install", "--cpu", "--row", "twin").code == 0
    assert '__version__ = "99.0"\n' == (site_of(tiny.current.resolve()) / "verl" / "__init__.py").read_text()


def test_an_edit_in_place_stays_in_its_environment(tiny, installed, wheels):
    """Editors write hard links in place: what people patch is no hard link, so no sibling and no cache has the edit."""
    tiny.site.add_row("twin", [wheels["torch"], wheels["verl"], wheels["tiny-sub"]])
    assert tiny("install", "--cpu", "--row", "twin").code == 0
    twin = tiny.current.resolve()
    (site_of(installed) / "verl" / "__init__.py").write_text("PATCHED = 1\n")
    done = tiny("capture", installed, "--with-patches", "-o", "pylock.captured.toml")
    assert (0, False) == (done.code, "hard link" in done.out), done.err
    assert 0 == tiny("verify", twin.name, "--deep").code
    assert tiny("install", "pylock.captured.toml").code == 0
    assert "PATCHED = 1\n" == (site_of(tiny.current.resolve()) / "verl" / "__init__.py").read_text()
    assert '__version__ = "99.0"\n' == (site_of(twin) / "verl" / "__init__.py").read_text()


@pytest.mark.parametrize("words", [(), ("--with-patches",)], ids=["without the patch", "with the patch"])
def test_an_edit_that_reached_the_cache(tiny, installed, tmp_path, words):
    """An edit in place of another package is in uv's cache too: that is said, and an installation gets what it asks."""
    path = site_of(installed) / "tiny_sub" / "__init__.py"
    assert path.stat().st_nlink > 1
    with path.open("a") as stream:
        stream.write("PATCHED = 1\n")
    done = tiny("capture", installed, *words, "-o", "pylock.captured.toml")
    assert (0, True) == (done.code, "an edited file is a hard link" in done.out), done.err
    other = elsewhere(tiny, tmp_path)
    built = other("install", tiny.work / "pylock.captured.toml", UV_CACHE_DIR=str(tiny.home / ".cache/uv"))
    assert built.code == 0, built.err
    there = (site_of(other.current.resolve()) / "tiny_sub" / "__init__.py").read_text()
    assert (bool(words), 0) == ("PATCHED = 1" in there, other("verify", "--deep").code)


def test_a_patched_environment_is_captured_again(tiny, installed):
    """The environment of a patched lock gives the same patch again."""
    edit(site_of(installed) / "verl" / "__init__.py", "PATCHED = 1\n")
    assert tiny("capture", installed, "--with-patches", "-o", "pylock.one.toml").code == 0
    assert tiny("install", "pylock.one.toml").code == 0
    assert tiny("capture", tiny.current.resolve(), "--with-patches", "-o", "pylock.two.toml").code == 0
    one, two = (tiny.work / f"pylock.{it}.patch" for it in ("one", "two"))
    assert one.read_text() == two.read_text()


def test_another_patch_is_refused_before_anything_is_built(tiny, installed):
    """The lock knows the hash of its patch."""
    edit(site_of(installed) / "verl" / "__init__.py", "PATCHED = 1\n")
    assert tiny("capture", installed, "--with-patches", "-o", "pylock.captured.toml").code == 0
    (tiny.work / "pylock.captured.patch").write_text("--- a/verl/__init__.py\n+++ b/verl/__init__.py\n")
    done = tiny("install", "pylock.captured.toml")
    assert 11 == done.code
    assert "is not the patch that the lock was made with" in done.err


def test_a_binary_edit_is_refused(tiny, installed):
    """A patch holds text; what is none is named, and nothing is written."""
    (site_of(installed) / "verl" / "__init__.py").unlink()
    (site_of(installed) / "verl" / "__init__.py").write_bytes(b"\x00\xff")
    done = tiny("capture", installed, "--with-patches", "-o", "pylock.captured.toml")
    assert 10 == done.code
    assert "not text" in done.err
    assert [] == sorted(it.name for it in tiny.work.iterdir())


def test_what_does_not_belong_is_named(tiny, installed):
    """Files that no package owns, files that are gone, and a broken uninstall are in the answer."""
    site = site_of(installed)
    (site / "my_notes.py").write_text("x = 1\n")
    (site / "loose").mkdir()
    (site / "loose" / "a.py").write_text("")
    (site / "~orch").mkdir()
    (site / "tiny_sub" / "__init__.py").unlink()
    found = tiny("capture", installed, "--no-lock", "--json").json["data"]["condition"]
    assert ["loose/", "my_notes.py"] == sorted(found["unowned"])
    assert [("tiny-sub", "missing")] == [(it["package"], it["state"]) for it in found["files"]]
    assert ["~orch is left over from an uninstall that broke off"] == found["faults"]


def test_nothing_of_the_environment_is_run(tiny, installed, tmp_path):
    """Start-up files and modules of the environment would leave a mark."""
    site, mark = site_of(installed), tmp_path / "ran"
    for name, text in (("zz.pth", f"import pathlib; pathlib.Path({str(mark)!r}).touch()\n"),
                       ("sitecustomize.py", f"import pathlib; pathlib.Path({str(mark)!r}).touch()\n")):  # fmt: skip
        (site / name).write_text(text)
    done = tiny("capture", installed, "--no-lock", "--json")
    assert (0, False) == (done.code, mark.exists())
    assert ["zz.pth"] == done.json["data"]["condition"]["startup"]


@pytest.fixture
def checkout(tmp_path):
    """Return a checkout of a small project with one commit."""
    folder = tmp_path / "checkout"
    (folder / "tiny_tool").mkdir(parents=True)
    (folder / "tiny_tool" / "__init__.py").write_text("")
    text = '[build-system]\nrequires = []\n[project]\nname = "tiny-tool"\nversion = "0.3"\n'
    (folder / "pyproject.toml").write_text(text)
    git(folder, "init", "--quiet")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "one")
    return folder


def editable(site, folder):
    """Lay an editable installation of a folder into an environment, as pip does."""
    info = site / "tiny_tool-0.3.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny-tool\nVersion: 0.3\n")
    (info / "RECORD").write_text("tiny_tool-0.3.dist-info/RECORD,,\n")
    (info / "direct_url.json").write_text(f'{{"url": "file://{folder}", "dir_info": {{"editable": true}}}}')


@pytest.mark.parametrize(
    ("dirty", "reason"),
    [pytest.param(False, "unpushed", id="unpushed"), pytest.param(True, "dirty", id="dirty")],
)
def test_a_checkout_that_nobody_else_has_is_named(tiny, installed, checkout, dirty, reason):
    """An editable package is locked by commit, and one whose commit is out of reach cannot be reproduced."""
    editable(site_of(installed), checkout)
    if dirty:
        (checkout / "tiny_tool" / "__init__.py").write_text("x = 1\n")
    done = tiny("capture", installed, "--json")
    assert 5 == done.code
    assert [("tiny-tool", reason)] == [(it["name"], it["reason"]) for it in done.json["data"]["unavailable"]]
    assert [] == sorted(it.name for it in tiny.work.iterdir())
    assert str(checkout) not in done.out + done.err


def test_a_pushed_checkout_is_locked_by_commit(tiny, installed, checkout):
    """The lock names the remote without its credentials, and the commit."""
    editable(site_of(installed), checkout)
    git(checkout, "remote", "add", "origin", "https://me:secret@git.example/tool.git")
    git(checkout, "update-ref", "refs/remotes/origin/main", "HEAD")
    done = tiny("capture", installed, "-o", "pylock.captured.toml")
    assert done.code == 0, done.err
    (package,) = read_lock(tiny.work / "pylock.captured.toml").table.captured.git
    assert ("tiny-tool", "https://git.example/tool.git", 40) == (package.name, package.url, len(package.commit))
    assert "secret" not in (tiny.work / "pylock.captured.toml").read_text() + done.out + done.err


def test_what_the_index_lost_is_named(tiny, installed, wheels, serve, tmp_path):
    """A package that no index has any more is unavailable, with the reason; --partial leaves it out."""
    poorer = tmp_path / "poorer"
    poorer.mkdir()
    for path in wheels["torch"].parent.glob("*.whl"):
        if not path.name.startswith("tiny_sub"):
            (poorer / path.name).write_bytes(path.read_bytes())
    index = serve(poorer)
    done = tiny("capture", installed, "--index", index.url, "--json")
    assert 5 == done.code
    assert [("tiny-sub", "not-on-index")] == [(it["name"], it["reason"]) for it in done.json["data"]["unavailable"]]
    done = tiny("capture", installed, "--index", index.url, "--partial", "-o", "pylock.toml")
    assert done.code == 0, done.err
    assert ("tiny-sub",) == read_lock(tiny.work / "pylock.toml").table.captured.left_out
