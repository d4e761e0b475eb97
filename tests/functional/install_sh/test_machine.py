"""A clear no, early: machines, homes and temporary folders that will not do. One line, one hint, a documented code."""

import shutil
import subprocess

import pytest


def refused(done, code, said):
    """Check one line that says it, one hint, the code, and nothing on stdout."""
    lines = done.stderr.splitlines()
    assert (done.returncode, done.stdout, len(lines)) == (code, "", 2), done
    assert lines[0].startswith("verl-env: ")
    assert said in lines[0]
    assert lines[1].startswith("hint: ")


@pytest.mark.parametrize(
    ("device", "said"),
    [
        pytest.param("dev/kfd", "AMD GPU", id="amd"),
        pytest.param("opt/rocm/bin/rocminfo", "AMD GPU", id="rocm"),
        pytest.param("dev/davinci0", "Ascend", id="ascend"),
        pytest.param("dev/davinci_manager", "Ascend", id="ascend manager"),
        pytest.param("sys/module/habanalabs/version", "Gaudi", id="gaudi"),
    ],
)
def test_other_accelerators(release, device, said):
    """Other vendors' accelerators are not ours; nothing is fetched."""
    release.device(device)
    before = release.snapshot()
    refused(release.run(), 3, said)
    assert release.served.asked == []
    assert release.snapshot() == before


def test_refusal_in_each_shell(release, shell):
    """One line, one hint and the code, whatever the shell."""
    release.device("dev/kfd")
    refused(release.run(shell=shell), 3, "AMD GPU")


def test_gaudi_by_its_pci_vendor(release):
    """The driver need not be loaded."""
    release.device("sys/bus/pci/devices/0000:19:00.0/vendor")
    (release.root / "sys/bus/pci/devices/0000:19:00.0/vendor").write_text("0x1da3\n")
    refused(release.run(), 3, "Gaudi")


@pytest.mark.parametrize("nvidia", ["dev/nvidiactl", "dev/nvidia0", "proc/driver/nvidia/version", "dev/dxg"])
def test_nvidia_beside_amd_is_ours(release, nvidia):
    """An NVIDIA device next to an AMD processor's own graphics is no reason to refuse."""
    release.device("dev/kfd", nvidia)
    done = release.run("--dry-run")
    assert (done.returncode, "an NVIDIA device" in done.stdout) == (0, True)


@pytest.mark.parametrize("words", [["--cpu"], ["--driver", "550.54.15", "--gpu", "h100"], ["--node=node.json"]])
def test_described_nodes_may_be_built_for_on_an_amd_machine(release, words):
    """Who describes another node, or wants CPU work, is let through."""
    release.device("dev/kfd")
    assert release.run("--dry-run", *words).returncode == 0


@pytest.mark.parametrize(
    ("uname", "said"),
    [
        pytest.param('[ "$1" = -s ] && echo Darwin || echo arm64', "Linux", id="macos"),
        pytest.param('[ "$1" = -s ] && echo Linux || echo ppc64le', "ppc64le", id="power"),
        pytest.param('[ "$1" = -s ] && echo Linux || echo armv7l', "armv7l", id="32 bit"),
    ],
)
def test_other_systems(release, uname, said):
    """Not Linux, or not one of the two architectures that the wheels exist for."""
    release.command("uname", uname)
    refused(release.run(), 3, said)


@pytest.mark.parametrize("with_gcompat", [False, True])
def test_musl(release, with_gcompat):
    """Alpine is told so, also where its glibc stand-in is installed."""
    release.device("lib/ld-musl-x86_64.so.1", "etc/os-release")
    (release.root / "etc/os-release").write_text("NAME=Alpine\nID=alpine\n")
    if with_gcompat:
        release.device("lib64/ld-linux-x86-64.so.2")
    refused(release.run(), 3, "musl")


def test_musl_beside_glibc(release):
    """Debian with its musl package is a glibc system."""
    release.device("lib/ld-musl-x86_64.so.1", "lib64/ld-linux-x86-64.so.2")
    assert release.run("--dry-run").returncode == 0


def test_no_home(release, shell):
    """No HOME and no VERL_ENV_HOME: there is nowhere to install to."""
    if shell == "zsh":
        pytest.skip("zsh looks its user's HOME up and sets it")
    del release.env["HOME"]
    refused(release.run(shell=shell), 2, "HOME is not set")


def test_no_home_but_verl_env_home(release, tmp_path):
    """VERL_ENV_HOME is enough; everything lies in it, the launcher too."""
    del release.env["HOME"]
    moved = tmp_path / "moved here"
    (moved / "self").mkdir(parents=True)
    shutil.copytree(release.self / "uv", moved / "self/uv")
    done = release.run("hello", VERL_ENV_HOME=str(moved))
    assert (done.returncode, done.stdout) == (0, "release install hello\n")
    assert f"exec '{moved}/self/tool/" in (moved / "bin/verl-env").read_text()
    assert not release.launcher.exists()


@pytest.mark.parametrize("home", ["relative/home", "/proc/nowhere"])
def test_home_that_cannot_be(release, home):
    """A HOME that is no absolute path, or where nothing can be made."""
    done = release.run(HOME=home)
    refused(done, 2, home if home[0] == "/" else "not an absolute path")


def test_tmpdir_that_is_not_there(release):
    """TMPDIR names a folder that does not exist."""
    refused(release.run(TMPDIR="/nonexistent"), 2, "/nonexistent")


def in_namespace(node, setup):
    """Run the script after some mounts, in a mount namespace of its own."""
    words = ["unshare", "-rm", "sh", "-c", f'{setup} && exec sh "$0"', str(node.script)]
    probe = ["unshare", "-rm", "sh", "-c", "mount -t tmpfs none /mnt"]
    if not shutil.which("unshare") or subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip("no mount namespaces here")
    env = {**node.env, "PATH": f"{node.env['PATH']}:/usr/sbin:/usr/bin:/sbin:/bin"}
    return subprocess.run(words, env=env, capture_output=True, text=True, check=False)


def test_tmpdir_noexec(release):
    """A TMPDIR from which nothing can be started is said before it breaks something later."""
    done = in_namespace(release, f"mount -t tmpfs -o noexec none {release.tmp}")
    refused(done, 2, "noexec")
    assert str(release.tmp) in done.stderr


def test_home_read_only(release):
    """A read-only home gets one line, and VERL_ENV_HOME as the way out."""
    done = in_namespace(
        release, f"mount --bind {release.home} {release.home} && mount -o remount,bind,ro {release.home}"
    )
    refused(done, 2, "read-only")
    assert "VERL_ENV_HOME" in done.stderr


def test_home_noexec(release):
    """A home from which nothing can be started."""
    done = in_namespace(release, f"mount -t tmpfs -o noexec none {release.home}")
    refused(done, 2, "noexec")


def test_no_room(release):
    """Too little space is seen before the first byte, with the figures."""
    done = in_namespace(release, f"mount -t tmpfs -o size=20m none {release.home}")
    refused(done, 11, "MB free")
    assert release.served.asked == []


def test_no_way_to_check(release):
    """With nothing that computes a sha256, nothing is fetched."""
    release.without("sha256sum", "openssl", "python3")
    refused(release.run(), 6, "no download can be checked")
    assert release.served.asked == []


@pytest.mark.parametrize("hasher", ["openssl", "python3"])
def test_other_hashers(release, hasher):
    """Either of openssl and Python checks as well as sha256sum does."""
    release.without("sha256sum")
    if hasher == "python3":
        release.without("openssl")
    elif not (release.bin / "openssl").exists():
        pytest.skip("no openssl here")
    assert release.run().returncode == 0


@pytest.mark.parametrize(
    ("words", "env", "said"),
    [
        pytest.param(["--purge"], {}, "--uninstall", id="purge alone"),
        pytest.param(["--uninstall", "--frozen"], {}, "--frozen", id="uninstall with more"),
        pytest.param([], {"VERL_ENV_NO_RUN": "maybe"}, "VERL_ENV_NO_RUN=maybe", id="switch"),
    ],
)
def test_usage(release, words, env, said):
    """Options and variables that contradict each other or cannot be understood."""
    refused(release.run(*words, **env), 2, said)


def test_unstamped_and_piped(node):
    """The install.sh of the tree knows no release: piped, it refuses and fetches nothing."""
    before = node.snapshot()
    refused(node.run(), 6, "not a release's")
    assert node.snapshot() == before
