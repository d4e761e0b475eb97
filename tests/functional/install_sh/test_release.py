"""A release, piped: fetched from one place, checked, installed as a tool of its own, quick the second time."""

import os
import signal
import subprocess
import threading
from pathlib import Path

import pytest


def test_installs_and_runs(release, shell):
    """Piped into each shell: the wheel is fetched once, verified, installed, and gets the arguments unchanged."""
    done = release.run("--row", "a b", "*", "--", "--dry-run", shell=shell)
    assert (done.returncode, done.stdout) == (0, "release install --row a b * --dry-run\n")
    assert release.served.asked == ["/verl_env-1.2.3-py3-none-any.whl"]
    assert release.launcher.is_file()
    assert sorted(it.name for it in release.self.iterdir()) == ["made", "tool", "uv"]
    assert list(release.tmp.iterdir()) == []


def test_second_run_does_nothing_but_run(release, shell):
    """What is there is used: no request, no call of uv, no file touched."""
    release.run(shell=shell)
    before, asked, calls = release.snapshot(), list(release.served.asked), release.uv_calls()
    done = release.run("again", shell=shell)
    assert (done.returncode, done.stdout, done.stderr) == (0, "release install again\n", "")
    assert (release.snapshot(), release.served.asked, release.uv_calls()) == (before, asked, calls)


def test_exit_code_is_the_tools(release):
    """`verl-env install`'s own exit code comes back."""
    assert release.run(STUB_EXIT="4").returncode == 4


def test_bytecode_is_compiled(release):
    """The first call of the tool compiles nothing."""
    release.run("--no-run")
    assert [it.name for it in release.self.rglob("cli.*.pyc")] != []


def test_no_run(release):
    """`--no-run`, or its variable, stops after the tool; the user hears how to put it on PATH."""
    done = release.run(VERL_ENV_NO_RUN="1")
    assert (done.returncode, done.stdout) == (0, "")
    assert f'export PATH="{release.launcher.parent}:$PATH"' in done.stderr
    assert release.call("--version") == "verl-env 1.2.3\n"


def test_launcher_on_path_is_not_explained(release):
    """Who has the folder on PATH is not told about PATH."""
    done = release.run("--no-run", PATH=f"{release.env['PATH']}:{release.launcher.parent}")
    assert "is not on PATH" not in done.stderr
    assert not (release.launcher.parent / "env").exists()


def test_folders_follow_xdg(release, tmp_path):
    """XDG_DATA_HOME and XDG_BIN_HOME move the data and the launcher."""
    done = release.run(
        "--no-run",
        XDG_BIN_HOME=str(tmp_path / "bins"),
        XDG_DATA_HOME=str(tmp_path / "data"),
        UV_CACHE_DIR=str(tmp_path / "c"),
    )
    assert (done.returncode, release.launcher.exists()) == (6, False)  # the uv of this node lies in the other folder
    (tmp_path / "data/verl-env").mkdir(parents=True)
    release.self.rename(tmp_path / "data/verl-env/self")
    done = release.run("--no-run", XDG_BIN_HOME=str(tmp_path / "bins"), XDG_DATA_HOME=str(tmp_path / "data"))
    assert done.returncode == 0
    assert f"exec '{tmp_path}/data/verl-env/self/tool/1.2.3-" in (tmp_path / "bins/verl-env").read_text()


def test_tampered_wheel_is_refused_and_nothing_is_left(release):
    """A wheel that is not the stamped one is not installed; the home is as it was."""
    wheel = release.served.folder / "verl_env-1.2.3-py3-none-any.whl"
    wheel.write_bytes(wheel.read_bytes() + b"x")
    before = set(release.snapshot()[0])
    done = release.run()
    assert (done.returncode, done.stdout) == (6, "")
    assert "is not the file this script knows; nothing was installed" in done.stderr
    assert set(release.snapshot()[0]) == before


def test_tampered_wheel_leaves_the_installation_before_it(release):
    """A failed upgrade changes nothing: the same launcher starts the same tool."""
    release.run("--no-run")
    started = release.started()
    release.repin(RELEASE_SHA256="0" * 64)
    done = release.run()
    assert (done.returncode, release.started()) == (6, started)
    assert release.call("hi") == "release hi\n"
    assert sorted(it.name for it in release.self.iterdir()) == ["made", "tool", "uv"]


def test_upgrade_keeps_the_one_before(release, stamp, make_tool_wheel):
    """A newer release becomes the launcher's; the one before stays for those who run it, older ones go."""
    folders = []
    for word in ("first", "second", "third"):
        wheel = make_tool_wheel(release.served.folder, word=word)
        release.repin(RELEASE_SHA256=stamp.hashlib.sha256(wheel.read_bytes()).hexdigest())
        assert release.run().stdout == f"{word} install\n"
        folders.append(release.started().name)
    assert sorted(it.name for it in (release.self / "tool").iterdir()) == sorted(folders[1:])


def test_unreachable_release_masks_credentials(release):
    """The error names the place, without its credentials and its query."""
    done = release.run(VERL_ENV_BASE_URL="http://user:s3cret@127.0.0.1:9/files?token=t0ken")
    assert done.returncode == 6
    assert "http://***@127.0.0.1:9/files?***" in done.stderr
    assert "s3cret" not in done.stderr + done.stdout
    assert "t0ken" not in done.stderr + done.stdout
    assert done.stderr.splitlines()[-1].startswith("hint: ")


@pytest.mark.parametrize("gone", [[], ["curl"], ["curl", "wget"]], ids=["curl", "wget", "python"])
def test_downloaders(release, gone):
    """curl, else wget, else Python; a missing one is no reason to stop."""
    release.without(*(it for it in gone if (release.bin / it).exists()))
    assert release.run().returncode == 0


def test_credentials_of_the_base_url_are_used(release):
    """They go to the server, and to no process list."""
    base = release.served.url.replace("http://", "http://user:s3cret@")
    release.command("ps", "true")
    assert release.run(VERL_ENV_BASE_URL=base).returncode == 0
    assert release.served.credentials[-1].startswith("Basic ")


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "PIP_PROXY"])
@pytest.mark.parametrize("gone", [[], ["curl"], ["curl", "wget"]], ids=["curl", "wget", "python"])
def test_proxy_is_used(release, name, gone):
    """A proxy by any of its names is honoured, in capitals too, which curl and wget ignore for http."""
    release.without(*(it for it in gone if (release.bin / it).exists()))
    done = release.run(VERL_ENV_BASE_URL="http://release.invalid", **{name: release.served.url})
    assert "http://release.invalid/verl_env-1.2.3-py3-none-any.whl" in release.served.asked, done


def test_foreign_launcher_is_left_alone(release):
    """A verl-env that someone else put there is not replaced."""
    release.launcher.parent.mkdir(parents=True)
    release.launcher.write_text("#!/bin/sh\n")
    done = release.run()
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 2)
    assert release.launcher.read_text() == "#!/bin/sh\n"
    assert release.served.asked == []


def test_dependencies_are_held_against_their_hashes(release, stamp, make_tool_wheel, make_wheel, tmp_path):
    """A dependency's file that differs from the locked one is refused; the locked one is taken."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    good = make_wheel(wheels, "stub_dependency", "2.0", {"stub_dependency.py": "x = 1\n"})
    locked = tmp_path / "locked.txt"
    locked.write_text(f"stub-dependency==2.0 --hash=sha256:{stamp.hashlib.sha256(good.read_bytes()).hexdigest()}\n")
    tool = make_tool_wheel(release.served.folder, requires=["stub-dependency>=1"])
    assert stamp.main([str(tool), "--requirements", str(locked), "--output", str(release.script)]) == 0
    settings = {"UV_FIND_LINKS": str(wheels), "UV_NO_INDEX": "1"}
    content = good.read_bytes()
    make_wheel(wheels, "stub_dependency", "2.0", {"stub_dependency.py": "x = 666\n"})
    before = set(release.snapshot()[0])
    done = release.run(**settings)
    assert done.returncode == 6
    assert "another file than the one that was locked" in done.stderr
    assert set(release.snapshot()[0]) == before
    good.write_bytes(content)
    assert release.run(**settings).stdout == "release install\n"
    assert [it.read_text() for it in release.self.rglob("stub_dependency.py")] == ["x = 1\n"]


def test_dependency_missing_from_the_lock_is_refused(release, stamp, make_tool_wheel, make_wheel, tmp_path):
    """What no hash was written for is not installed, even where an index has it."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    make_wheel(wheels, "stub_dependency", "2.0", {"stub_dependency.py": "x = 1\n"})
    (tmp_path / "empty.txt").write_text("")
    tool = make_tool_wheel(release.served.folder, requires=["stub-dependency>=1"])
    words = [str(tool), "--requirements", str(tmp_path / "empty.txt"), "--output", str(release.script)]
    assert stamp.main(words) == 0
    assert release.run(UV_FIND_LINKS=str(wheels), UV_NO_INDEX="1").returncode == 6


def test_two_at_once(release):
    """The second waits for the first and finds it done: one download, both succeed."""
    release.served.stall_on = ".whl"
    first = release.start("one")
    assert release.served.stalled.wait(20)
    second = release.start("two")
    line = second.stderr.readline()
    assert line.startswith("verl-env: waiting for another installation")
    release.served.stall.set()
    out = [child.communicate(timeout=60)[0] for child in (first, second)]
    assert (out, first.returncode, second.returncode) == (["release install one\n", "release install two\n"], 0, 0)
    assert len(release.served.asked) == 1


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_interrupted(release, how):
    """Ended in the middle, by whatever signal: the tool before still works, and the next run completes."""
    release.run("--no-run")
    release.served.asked.clear()
    (old,) = (release.self / "tool").iterdir()
    old.joinpath("complete").unlink()
    old.rename(old.with_name("old-1"))
    release.launcher.write_text(release.launcher.read_text().replace(old.name, "old-1"))
    release.served.stall_on = ".whl"
    child = release.start()
    assert release.served.stalled.wait(20)
    os.killpg(child.pid, how)
    child.communicate(timeout=60)
    assert child.returncode in {-how, 128 + how}
    assert release.started().name == "old-1"
    if how != signal.SIGKILL:
        assert sorted(it.name for it in release.self.iterdir()) == ["made", "tool", "uv"]
    release.served.stall.set()
    assert release.run("go on").stdout == "release install go on\n"
    assert sorted(it.name for it in release.self.iterdir()) == ["made", "tool", "uv"]


def test_killed_while_uv_installs(release):
    """A half-made environment is no environment: it is made again."""
    (release.self / "tool").mkdir(parents=True)
    release.run("--no-run")
    (made,) = (release.self / "tool").iterdir()
    (made / "complete").unlink()
    (made / "verl-env/bin/verl-env").unlink()
    assert release.run("x").stdout == "release install x\n"


def test_living_holder_is_waited_for_only_so_long(release):
    """A lock that is held too long is named, with what to do."""
    (release.self / "lock").mkdir(parents=True)
    stat = Path("/proc/self/stat").read_text().rsplit(") ", 1)[1].split()
    (release.self / "lock/holder").write_text(
        f"{os.uname().nodename} {os.readlink('/proc/self/ns/pid')} {os.getpid()} {stat[19]}\n"
    )
    done = release.run(VERL_ENV_LOCK_TIMEOUT="1")
    assert done.returncode == 6
    assert str(release.self / "lock") in done.stderr
    assert (release.self / "lock/holder").exists()


def test_dead_holders_lock_is_taken_over(release):
    """The same pid with another start time is another process."""
    (release.self / "lock").mkdir(parents=True)
    (release.self / "lock/holder").write_text(
        f"{os.uname().nodename} {os.readlink('/proc/self/ns/pid')} {os.getpid()} 1\n"
    )
    done = release.run("x")
    assert (done.returncode, done.stdout) == (0, "release install x\n")
    assert not (release.self / "lock").exists()


def test_four_at_once(release):
    """However many start together, one installs."""
    children = [release.start(str(it)) for it in range(4)]
    threads = [threading.Thread(target=it.communicate) for it in children]
    for it in threads:
        it.start()
    for it in threads:
        it.join(60)
    assert [it.returncode for it in children] == [0, 0, 0, 0]
    assert len(release.served.asked) == 1


def test_dry_run_touches_nothing(release, shell):
    """The plan names what would be fetched and where things would lie; nothing changes, nothing is asked."""
    before = release.snapshot()
    base = "https://user:s3cret@mirror.invalid/verl-env"
    done = release.run("--dry-run", "--row", "x", shell=shell, VERL_ENV_BASE_URL=base)
    assert (done.returncode, done.stderr) == (0, "")
    for said in (
        "https://***@mirror.invalid/verl-env/verl_env-1.2.3",
        str(release.data),
        str(release.launcher),
        "MB free",
        "verl-env install --row x",
    ):
        assert said in done.stdout
    assert "s3cret" not in done.stdout
    assert (release.snapshot(), release.served.asked, release.uv_calls()) == (before, [], [])


def test_dry_run_of_what_is_installed_goes_on_to_the_tool(release):
    """With verl-env there, its own --dry-run follows the plan."""
    release.run("--no-run")
    before = release.snapshot()
    done = release.run("--dry-run", "--row", "x")
    assert done.stdout.splitlines()[-1] == "release install --dry-run --row x"
    assert release.snapshot() == before


def test_pythonpath_does_not_reach_the_tool(release, tmp_path):
    """What a cluster puts on PYTHONPATH, or the user in their own site-packages, shadows nothing of the tool."""
    (tmp_path / "verl_env").mkdir()
    (tmp_path / "verl_env/__init__.py").write_text("raise SystemExit('the wrong one')\n")
    assert release.run("x", PYTHONPATH=str(tmp_path)).stdout == "release install x\n"
    assert release.call("y", PYTHONPATH=str(tmp_path)) == "release y\n"


def test_folder_with_a_quote(release, tmp_path):
    """A folder's name may hold what a shell would read."""
    odd = tmp_path / "it's $HOME"
    odd.mkdir()
    release.self.rename(odd / "self")
    assert release.run("x", VERL_ENV_HOME=str(odd)).stdout == "release install x\n"
    asked = list(release.served.asked)
    assert release.run("y", VERL_ENV_HOME=str(odd)).stdout == "release install y\n"
    assert release.served.asked == asked


def test_umask_and_settings_reach_the_tool(release):
    """The tool gets the caller's umask and environment; of the script's own variables it gets none."""
    release.run("--no-run")
    cli = next(release.started().rglob("verl_env/cli.py"))
    cli.write_text(
        "import os\ndef main(): print(oct(os.umask(0)), sorted(it for it in os.environ if it[:3] in ('UV_', 'VER')))\n"
    )
    release.command("umasked", 'umask 027; exec sh "$@"')
    done = release.run(
        UV_INDEX_URL="https://x.invalid", VERL_ENV_BIN_DIR=str(release.launcher.parent), VERL_ENV_ROW="x"
    )
    assert "VERL_ENV_BIN_DIR" not in done.stdout
    assert "'VERL_ENV_ROW'" in done.stdout
    assert "'UV_INDEX_URL'" in done.stdout
    words = [release.bin / "umasked", release.script]
    assert subprocess.run(words, env=release.env, capture_output=True, text=True, check=True).stdout.startswith("0o27 ")
