"""From a checkout: that checkout is built and installed, again only when its sources changed."""

import shutil


def test_installs_the_checkout(checkout, shell):
    """`sh install.sh` beside the pyproject.toml builds it, also from a folder with a space, with no network."""
    done = checkout.run("--row", "a b", shell=shell, piped=False)
    assert (done.returncode, done.stdout) == (0, "checkout install --row a b\n")


def test_nothing_is_written_into_the_checkout(checkout):
    """The checkout may be someone else's."""
    before = {it for it in checkout.folder.rglob("*") if "__pycache__" not in it.parts}
    assert checkout.run(piped=False).returncode == 0
    assert {it for it in checkout.folder.rglob("*") if "__pycache__" not in it.parts} == before


def test_second_run_does_not_install(checkout):
    """Unchanged sources: no call of uv, no file touched."""
    checkout.run(piped=False)
    before, calls = checkout.snapshot(), checkout.uv_calls()
    done = checkout.run("again", piped=False)
    assert (done.stdout, done.stderr) == ("checkout install again\n", "")
    assert (checkout.snapshot(), checkout.uv_calls()) == (before, calls)


def test_changed_sources_are_installed(checkout):
    """An edit counts, a compiled file does not."""
    checkout.run(piped=False)
    calls = len(checkout.uv_calls())
    cache = checkout.folder / "installer/verl_env/__pycache__"
    cache.mkdir()
    (cache / "cli.cpython-311.pyc").write_bytes(b"x")
    checkout.run(piped=False)
    assert len(checkout.uv_calls()) == calls
    cli = checkout.folder / "installer/verl_env/cli.py"
    cli.write_text(cli.read_text().replace("checkout", "edited"))
    assert checkout.run(piped=False).stdout == "edited install\n"


def test_broken_sources_leave_the_tool_before(checkout):
    """A checkout that does not start is not put in place; the error shows what it said."""
    checkout.run(piped=False)
    started = checkout.started()
    (checkout.folder / "installer/verl_env/cli.py").write_text("raise SystemExit('no such thing')\n")
    done = checkout.run(piped=False)
    assert done.returncode == 6
    assert "no such thing" in done.stderr
    assert checkout.started() == started
    assert list((checkout.self / "tool").iterdir()) == [started]


def test_build_that_fails(checkout):
    """The build's own words are shown, then one hint."""
    (checkout.folder / "backend.py").write_text("raise RuntimeError('the backend is broken')\n")
    done = checkout.run(piped=False)
    assert done.returncode == 6
    assert "the backend is broken" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("hint: ")
    assert not (checkout.self / "tool").exists()


def test_through_a_symbolic_link(checkout, tmp_path):
    """A link to the checkout's install.sh is the checkout's."""
    link = tmp_path / "link.sh"
    link.symlink_to(checkout.script)
    checkout.script = link
    assert checkout.run(piped=False).stdout == "checkout install\n"


def test_piped_inside_a_checkout_is_not_the_checkout(checkout):
    """Piped, the script knows no checkout, whatever lies in the working folder."""
    shutil.copytree(checkout.folder, checkout.tmp, dirs_exist_ok=True)
    (checkout.tmp / "dash").write_text("# not the script\n")
    done = checkout.run()
    assert (done.returncode, "not a release's" in done.stderr) == (6, True)


def test_install_sh_of_a_release_kept_as_a_file(release):
    """Downloaded first and started as a file: the same as piped."""
    assert release.run("x", piped=False).stdout == "release install x\n"
