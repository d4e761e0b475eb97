"""--uninstall takes away what the script made, and nothing else."""

import shutil
import subprocess

import pytest


def test_leaves_the_home_as_it_was(release, uv_files):
    """Every file and every folder that was made goes, uv too, and ~/.local where it was not there before."""
    shutil.rmtree(release.home / ".local")
    shutil.copy(uv_files.archive, release.served.folder)
    release.repin(**uv_files.pins)
    before = set(release.snapshot()[0])
    done = release.run("--no-run", VERL_ENV_UV_BASE_URL=release.served.url)
    assert (done.returncode, release.launcher.is_file()) == (0, True), done.stderr
    assert release.run("--uninstall").returncode == 0
    assert set(release.snapshot()[0]) == before


def test_after_an_installation(release, shell):
    """The tool, its uv and the launcher go; a neighbour in the same folders stays."""
    release.launcher.parent.mkdir(parents=True)
    (release.launcher.parent / "other").write_text("mine")
    release.run("--no-run", shell=shell)
    done = release.run("--uninstall", shell=shell)
    assert (done.returncode, done.stdout) == (0, "")
    assert [it.name for it in release.home.rglob("*") if it.is_file()] == ["other"]
    assert not release.data.exists()


def test_environments_are_kept(release):
    """Without --purge they stay, with everything in them."""
    release.run("--no-run")
    environment = release.data / "environments/abc"
    environment.mkdir(parents=True)
    (environment / "verl-env-receipt.json").write_text("{}")
    done = release.run("--uninstall")
    assert (done.returncode, release.self.exists()) == (0, False)
    assert (environment / "verl-env-receipt.json").read_text() == "{}"
    assert "--purge" in done.stderr


def test_purge_takes_environments_and_nothing_else(release):
    """Environments, their logs and `current` go; what verl-env did not make stays and is named."""
    release.run("--no-run")
    environments = release.data / "environments"
    for name, file in (("whole", "verl-env-receipt.json"), ("half", "pylock.half.toml"), ("not-ours", "notes.txt")):
        (environments / name).mkdir(parents=True)
        (environments / name / file).write_text("")
    (environments / ".whole.lock").write_text("")
    (release.data / "logs").mkdir()
    (release.data / "current").symlink_to(environments / "whole")
    done = release.run(VERL_ENV_UNINSTALL="1", VERL_ENV_PURGE="1")
    assert done.returncode == 0
    assert [str(it.relative_to(release.data)) for it in sorted(release.data.rglob("*"))] == [
        "environments", "environments/not-ours", "environments/not-ours/notes.txt",
    ]  # fmt: skip
    assert str(release.data) in done.stderr


def test_purge_leaves_nothing_of_a_moved_home(release, tmp_path):
    """VERL_ENV_HOME held everything, uv's cache too."""
    moved = tmp_path / "moved"
    moved.mkdir()
    release.self.rename(moved / "self")
    del release.env["UV_CACHE_DIR"]
    assert release.run("--no-run", VERL_ENV_HOME=str(moved)).returncode == 0
    assert (moved / "cache/uv").is_dir()
    assert release.run("--uninstall", "--purge", VERL_ENV_HOME=str(moved)).returncode == 0
    assert not moved.exists()


def test_dry_run(release):
    """It says what would go, and takes nothing."""
    release.run("--no-run")
    before = release.snapshot()
    done = release.run("--uninstall", "--purge", "--dry-run")
    for said in (release.launcher, release.self, release.data / "environments"):
        assert str(said) in done.stdout
    assert release.snapshot() == before


def test_foreign_launcher_stays(release):
    """A launcher that is not ours is not removed."""
    release.run("--no-run")
    release.launcher.unlink()
    release.launcher.write_text("mine")
    assert release.run("--uninstall").returncode == 0
    assert release.launcher.read_text() == "mine"


def test_nothing_to_remove(release):
    """Twice is not an error."""
    release.run("--uninstall")
    done = release.run("--uninstall")
    assert (done.returncode, "nothing to remove" in done.stderr) == (0, True)


@pytest.mark.parametrize("part", ["self/tool/x", "environments/x"])
def test_what_a_process_runs_from_stays(release, part):
    """An environment in use is not pulled from under its process."""
    release.run("--no-run")
    folder = release.data / part
    folder.mkdir(parents=True)
    (folder / "verl-env-receipt.json").write_text("{}")
    (folder / "sleeper").write_text("import time\nprint('up', flush=True)\ntime.sleep(60)\n")
    child = subprocess.Popen(["python3", folder / "sleeper"], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout.readline() == "up\n"
        done = release.run("--uninstall", "--purge")
        assert (done.returncode, folder.is_dir(), release.launcher.is_file()) == (6, True, True)
    finally:
        child.kill()
        child.communicate()
    assert release.run("--uninstall", "--purge").returncode == 0
    assert not folder.exists()
