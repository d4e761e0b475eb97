"""What pip and uv were told reaches uv: indexes, folders of wheels, certificates; in uv's own words."""

import importlib.util
import sys

import pytest

INDEX = "https://user:s3cret@mirror.invalid/simple"


@pytest.fixture
def settings(release):
    """Return a function that runs the script and returns the UV_* settings of the call that fetches packages."""

    def of(**env):
        done = release.run("--no-run", **env)
        calls = release.uv_calls()
        at = next(number for number, line in enumerate(calls) if line.startswith("pip install"))
        found = {}
        for line in calls[at + 1 :]:
            if not line.startswith("UV_"):
                break
            name, _, value = line.partition("=")
            found[name] = value
        assert "s3cret" not in done.stdout + done.stderr
        return found

    return of


def test_pip_variables_become_uvs(settings, tmp_path):
    """PIP_INDEX_URL and its kin, which uv does not read, arrive under uv's names."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    found = settings(
        PIP_INDEX_URL=INDEX, PIP_EXTRA_INDEX_URL="https://a.invalid/simple https://b.invalid/simple",
        PIP_FIND_LINKS=f"{wheels} /nonexistent file:///nonexistent", PIP_TRUSTED_HOST="mirror.invalid", PIP_NO_INDEX="0",
    )  # fmt: skip
    assert found["UV_DEFAULT_INDEX"] == INDEX
    assert found["UV_INDEX"] == "https://a.invalid/simple https://b.invalid/simple"
    assert found["UV_FIND_LINKS"] == str(wheels)
    assert found["UV_INSECURE_HOST"] == "mirror.invalid"
    assert found["UV_INDEX_STRATEGY"] == "unsafe-best-match"
    assert "UV_NO_INDEX" not in found


@pytest.mark.parametrize("name", ["UV_DEFAULT_INDEX", "UV_INDEX_URL"])
def test_uvs_own_settings_win(settings, name):
    """What uv was told itself stands."""
    found = settings(**{name: "https://uv.invalid/simple", "PIP_INDEX_URL": INDEX})
    assert found[name] == "https://uv.invalid/simple"
    assert INDEX not in found.values()


def test_uvs_own_file_wins(settings, release):
    """An index in uv.toml is not covered by pip's variable."""
    del release.env["UV_NO_CONFIG"]
    (release.home / ".config/uv").mkdir(parents=True)
    (release.home / ".config/uv/uv.toml").write_text('[[index]]\nurl = "https://uv.invalid/simple"\ndefault = true\n')
    assert "UV_DEFAULT_INDEX" not in settings(PIP_INDEX_URL=INDEX)


def test_pips_file_becomes_uvs(settings, release, tmp_path):
    """A configuration file of pip, read through pip itself; several values may stand on several lines."""
    if not any(importlib.util.find_spec(it) for it in ("pip", "ensurepip")):
        pytest.skip("this Python has neither pip nor ensurepip")
    release.command("python3", f'exec {sys.executable} "$@"')
    bundle = tmp_path / "bundle.pem"
    bundle.write_text("")
    (tmp_path / "pip.conf").write_text(
        f"[global]\nindex-url = {INDEX}\nextra-index-url =\n    https://a.invalid/simple\n    file:///nonexistent\n"
        f"    https://b.invalid/simple\ncert = {bundle}\n"
    )
    found = settings(PIP_CONFIG_FILE=str(tmp_path / "pip.conf"))
    assert found["UV_DEFAULT_INDEX"] == INDEX
    assert found["UV_INDEX"] == "https://a.invalid/simple https://b.invalid/simple"


def test_no_index(settings, tmp_path):
    """PIP_NO_INDEX with a folder of wheels: nothing else is asked."""
    found = settings(PIP_NO_INDEX="1", PIP_FIND_LINKS=str(tmp_path))
    assert (found["UV_NO_INDEX"], found["UV_FIND_LINKS"]) == ("1", str(tmp_path))


@pytest.mark.parametrize("name", ["SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"])
def test_certificates(release, tmp_path, name):
    """Whichever variable names the bundle, uv and curl are given it."""
    bundle = tmp_path / "bundle.pem"
    bundle.write_text("")
    said = tmp_path / "said"
    (curl := release.bin / "curl").unlink()
    release.command("curl", f'echo "$SSL_CERT_FILE $CURL_CA_BUNDLE" >"{said}"; exit 1')
    release.run(**{name: str(bundle)})
    assert said.read_text() == f"{bundle} {bundle}\n", curl


def test_what_bends_an_installation_is_left_out(settings):
    """Variables that would change what is installed do not reach uv."""
    found = settings(
        UV_CONSTRAINT="/nonexistent", UV_EXCLUDE_NEWER="2001-01-01", UV_PYTHON="2.7", VIRTUAL_ENV="/nonexistent"
    )
    assert {"UV_CONSTRAINT", "UV_EXCLUDE_NEWER", "UV_PYTHON"} & set(found) == set()


def test_stray_modules_are_not_imported(release):
    """A zipfile.py or pip/ in the working folder is not what Python finds."""
    for name in ("zipfile.py", "ssl.py", "hashlib.py", "pip.py"):
        (release.tmp / name).write_text("raise SystemExit('imported from the working folder')\n")
    release.without("sha256sum")
    assert release.run().returncode == 0
