"""The lockfile as a value, as text, and back."""

from __future__ import annotations

from dataclasses import replace

import pytest
from packaging.pylock import Pylock

from made import Smoke, lock_for, pins_for, urls_of
from verl_env import toml
from verl_env.errors import LockError
from verl_env.lock.build import hashed_requirements
from verl_env.lock.lockfile import lock_digest, parse_lock, render_lock


@pytest.fixture
def lock(facts):
    """Return a lock with a local version, an sdist, and every optional part of the table."""
    return lock_for(facts, exports={"NCCL_CUMEM_ENABLE": "0"}, smoke=Smoke(imports=("torch", "verl")))


def test_text_and_back(lock):
    """What is rendered is parsed to an equal value."""
    assert lock == parse_lock(render_lock(lock), "x")


def test_same_lock_same_bytes(lock, facts):
    """Rendering knows no clock, folder or order of pins."""
    turned = replace(lock, pins=lock.pins[::-1])
    assert render_lock(lock) == render_lock(turned) == render_lock(lock_for(facts, exports=lock.table.exports))


def test_digest_does_not_depend_on_urls(lock):
    """Another index gives other bytes and the same digest; both texts are whole locks."""
    other = replace(lock, urls=urls_of(pins_for(), "https://two.invalid/mirror"))
    one, two = render_lock(lock), render_lock(other)
    assert one != two
    assert parse_lock(one, "x").table.digest == parse_lock(two, "x").table.digest == lock.table.digest


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"python": "3.11"}, id="Python"),
        pytest.param({"exports": {"A": "1"}}, id="exports"),
        pytest.param({"imports": ("verl",)}, id="imports"),
        pytest.param({"driver": "999"}, id="driver"),
        pytest.param({"build": ()}, id="build requirements"),
        pytest.param({"sources": {}}, id="sources"),
    ],
)
def test_digest_covers_the_table(lock, change):
    """Whatever changes what would be installed or how changes the digest."""
    assert lock.table.digest != lock_digest(replace(lock.table, **change), lock.pins)


def test_packaging_accepts_it(lock):
    """Any PEP 751 installer reads it: packaging validates the whole document."""
    document = Pylock.from_dict(toml.loads(render_lock(lock)))
    assert "verl-env" == document.created_by
    assert ["antlr4-python3-runtime", "torch", "verl"] == [package.name for package in document.packages]


def test_environment_marker_names_the_platform(lock):
    """The lock says for which machine it is, in PEP 508's words."""
    (marker,) = toml.loads(render_lock(lock))["environments"]
    assert "sys_platform == 'linux' and platform_machine == 'x86_64' and implementation_name == 'cpython'" == marker


def test_names_where_they_live(lock):
    """The environment is named by row and digest, the file by row."""
    assert ("pylock.a.toml", f"a-{lock.table.digest[7:19]}") == (lock.file_name, lock.name)


def refused(text, where="pylock.a.toml"):
    """Parse what must be refused, and return the error."""
    with pytest.raises(LockError) as raised:
        parse_lock(text, where)
    assert where in raised.value.message
    assert raised.value.hint
    return raised.value


def test_truncated_at_every_tenth_byte(lock):
    """A lock that was cut anywhere is a LockError that names the file, and never a traceback."""
    text = render_lock(lock)
    whole = len(text.rstrip())
    for end in range(0, whole, 10):
        refused(text[:end])
    assert lock == parse_lock(text[:whole], "x")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("a" * 64, "e" * 64, id="a hash"),
        pytest.param("size = 22", "size = 23", id="a size"),
        pytest.param('python = "3.12"', 'python = "3.11"', id="the table"),
        pytest.param("NCCL_CUMEM_ENABLE", "LD_PRELOAD", id="an export"),
    ],
)
def test_tampered_lock_is_refused(lock, old, new):
    """What was changed after it was written does not give its digest; both digests are shown."""
    text = render_lock(lock)
    assert old in text
    error = refused(text.replace(old, new))
    assert "was changed after it was written" in error.message
    assert (2, True) == (len(error.details), lock.table.digest in error.details[0])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param('version = "4.9.3"\n', "", id="a package without version"),
        pytest.param('version = "0.9.1"', 'version = "0.9.2"', id="a version that is not its file's"),
        pytest.param(", size = 22", "", id="a file without size"),
        pytest.param("size = 22", 'size = "22"', id="a size that is text"),
        pytest.param('hashes = {sha256 = "bbb', 'hashes = {md5 = "bbb', id="a file without sha256"),
        pytest.param('name = "verl"', "name = 3", id="a name that is a number"),
        pytest.param("[tool.verl-env]", "[tool.verl-env]\nspeed = 3", id="an unknown key"),
        pytest.param('lock-version = "1.0"', 'lock-version = "2.0"', id="a later PEP"),
        pytest.param("imports = [\n", "imports = [3,\n", id="a list of the wrong kind"),
    ],
)
def test_damaged_lock_is_refused(lock, old, new):
    """A document with a part missing or of the wrong kind is a LockError."""
    text = render_lock(lock)
    assert old in text, text
    refused(text.replace(old, new, 1))


def test_lock_of_another_tool(lock):
    """A pylock without our table is another tool's; the hint says what installs it."""
    text = render_lock(lock).split("[tool.verl-env]")[0].split("[tool]")[0]
    error = refused(text)
    assert "lockfile of another tool" in error.message
    assert "uv pip sync" in error.hint


@pytest.mark.parametrize("tool", ["tool = 3\n", '[tool]\nverl-env = "x"\n', "[[tool]]\na = 1\n"])
def test_tool_table_of_another_shape(lock, tool):
    """`tool` that is no table, or ours that is none, is refused as another's."""
    text = render_lock(lock).split("[tool.verl-env]")[0].split("[tool]")[0]
    refused(tool + text if tool.startswith("tool") else text + tool)


def test_another_schema(lock):
    """A table of another verl-env names both schemas."""
    error = refused(render_lock(lock).replace("schema = 1", "schema = 2"))
    assert ("schema 2" in error.message, "reads 1" in error.message) == (True, True)


@pytest.mark.parametrize("text", ["", "not toml [", "a = 1", "\0"], ids=["empty", "text", "other TOML", "binary"])
def test_what_is_no_lock(text):
    """Anything else is refused with the file's name."""
    refused(text)


def test_hashed_requirements():
    """One exact version with its one hash a line, as uv and pip install it from any index."""
    lines = hashed_requirements(pins_for().pins).splitlines()
    assert f"torch==2.11.0+cu130 --hash=sha256:{'b' * 64}" == lines[1]
    assert 3 == len(lines)
