"""Which indexes a node is set up with: the settings of verl-env, uv and pip, in that order."""

from __future__ import annotations

import pytest

from verl_env.errors import UsageError
from verl_env.indexes import masked, merge_settings, pip_settings, read_indexes, uv_settings

ONE, TWO, THREE = (f"https://{name}.invalid/simple" for name in ("one", "two", "three"))


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Return an empty home whose settings files are the only ones of this user."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("PIP_CONFIG_FILE", raising=False)
    return tmp_path


def put(home, name, text):
    """Write one settings file."""
    path = home / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        pytest.param("https://one.invalid/simple", "https://one.invalid/simple", id="nothing to hide"),
        pytest.param("https://me:secret@one.invalid/simple", "https://***@one.invalid/simple", id="name and password"),
        pytest.param("https://token@one.invalid/", "https://***@one.invalid/", id="token as a name"),
        pytest.param("https://me:p@ss@one.invalid/", "https://***@one.invalid/", id="an @ inside the password"),
        pytest.param("https://one.invalid/a@b", "https://one.invalid/a@b", id="an @ in the path is no login"),
        pytest.param("a https://x:y@h/ b https://z:w@i/", "a https://***@h/ b https://***@i/", id="two in one text"),
        pytest.param("git@one.invalid", "git@one.invalid", id="no URL"),
    ],
)
def test_masked(url, shown):
    """User names and passwords never reach output."""
    assert shown == masked(url)


def test_the_strongest_default_wins_and_the_rest_adds_up():
    """The first default counts; extra indexes and folders are joined without repeats."""
    found = merge_settings(
        [
            ("a", {"default": None, "extra": [TWO]}),
            ("b", {"default": ONE, "find_links": ["/wheels"]}),
            ("c", {"default": THREE, "extra": [TWO, THREE], "find_links": ["/wheels"]}),
        ]
    )
    assert (ONE, (TWO, THREE), ("/wheels",)) == (found.default, found.extra, found.find_links)


def test_origins_name_the_setting_and_hide_the_login():
    """Every setting that said something is named, without credentials."""
    found = merge_settings([("UV_INDEX_URL", {"default": "https://me:secret@one.invalid/"}), ("PIP_INDEX_URL", {})])
    assert (("UV_INDEX_URL", "https://***@one.invalid/"),) == found.origins


@pytest.mark.parametrize(
    ("variables", "default"),
    [
        pytest.param({"PIP_INDEX_URL": ONE}, ONE, id="pip's"),
        pytest.param({"PIP_INDEX_URL": ONE, "UV_INDEX_URL": TWO}, TWO, id="uv's beats pip's"),
        pytest.param({"UV_INDEX_URL": ONE, "UV_DEFAULT_INDEX": TWO}, TWO, id="uv's newer name beats its older"),
        pytest.param({"UV_DEFAULT_INDEX": f"corp={ONE}"}, ONE, id="a named index of uv's"),
        pytest.param({}, None, id="none: uv's own default"),
        pytest.param({"UV_INDEX_URL": ""}, None, id="an empty variable says nothing"),
    ],
)
def test_default_index_by_variable(home, monkeypatch, variables, default):
    """Variables of uv before those of pip."""
    assert [] == list(home.iterdir())
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert default == read_indexes().default
    assert THREE == read_indexes(THREE).default


def test_files_come_after_variables_and_uvs_before_pips(home, monkeypatch):
    """Asked, uv's variables, uv's file, pip's variables, pip's file."""
    put(home, ".config/pip/pip.conf", f"[global]\nindex-url = {THREE}\n")
    assert THREE == read_indexes().default
    monkeypatch.setenv("PIP_INDEX_URL", TWO)
    assert TWO == read_indexes().default
    put(home, ".config/uv/uv.toml", f'[[index]]\nurl = "{ONE}"\ndefault = true\n')
    assert ONE == read_indexes().default
    monkeypatch.setenv("UV_DEFAULT_INDEX", TWO)
    assert TWO == read_indexes().default


def test_pips_file_can_be_named_or_turned_off(home, monkeypatch):
    """PIP_CONFIG_FILE names one more file, before the user's; /dev/null turns all of them off."""
    put(home, ".config/pip/pip.conf", f"[global]\nindex-url = {ONE}\n")
    named = put(home, "named.conf", f"[global]\nindex-url = {TWO}\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(named))
    assert TWO == read_indexes().default
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    assert None is read_indexes().default


def test_lists_are_split_as_their_owners_split_them(home, monkeypatch):
    """Extra indexes by blanks, uv's folders by commas or blanks."""
    assert home
    monkeypatch.setenv("UV_INDEX", f"corp={ONE} {TWO}")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", f"{TWO} {THREE}")
    monkeypatch.setenv("UV_FIND_LINKS", "/a,/b")
    monkeypatch.setenv("PIP_FIND_LINKS", "/b /c")
    found = read_indexes()
    assert ((ONE, TWO, THREE), ("/a", "/b", "/c")) == (found.extra, found.find_links)


def test_nothing_is_set(home):
    """With no setting anywhere there is no default, no extra index, and no folder (not one with an empty name)."""
    assert home
    found = read_indexes()
    assert (None, (), (), ()) == (found.default, found.extra, found.find_links, found.origins)


def test_an_index_for_one_source(home, monkeypatch):
    """VERL_ENV_INDEX_PYTORCH_CPU stands for the source `pytorch-cpu`."""
    assert home
    monkeypatch.setenv("VERL_ENV_INDEX_PYTORCH_CPU", ONE)
    monkeypatch.setenv("VERL_ENV_INDEX", TWO)
    assert {"pytorch-cpu": ONE} == dict(read_indexes().by_source)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(f'index-url = "{ONE}"\n', (ONE, [], []), id="the older key"),
        pytest.param(f'[pip]\nindex-url = "{ONE}"\n', (ONE, [], []), id="under [pip]"),
        pytest.param(f'[[index]]\nurl = "{ONE}"\n', (None, [ONE], []), id="an extra index"),
        pytest.param(f'[[index]]\nurl = "{ONE}"\nexplicit = true\n', (None, [], []), id="explicit: not for us"),
        pytest.param(f'[[index]]\nname = "c"\nurl = "{ONE}"\ndefault = true\n', (ONE, [], []), id="the default"),
        pytest.param('find-links = ["/a"]\n[pip]\nfind-links = ["/b"]\n', (None, [], ["/a", "/b"]), id="folders"),
        pytest.param("", (None, [], []), id="empty"),
    ],
)
def test_uv_settings(text, expected):
    """uv.toml in its forms."""
    found = uv_settings(text, "uv.toml")
    assert expected == (found["default"], found["extra"], found["find_links"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(f"[global]\nindex-url = {ONE}\n", (ONE, [], []), id="global"),
        pytest.param(f"[global]\nindex-url={ONE}\n[install]\nindex-url={TWO}\n", (TWO, [], []), id="install wins"),
        pytest.param(f"[global]\nextra-index-url =\n    {ONE}\n    {TWO}\n", (None, [ONE, TWO], []), id="over lines"),
        pytest.param("[global]\nfind-links = /a /b\n", (None, [], ["/a", "/b"]), id="folders"),
        pytest.param(
            "[global]\nindex-url = https://me:100%@one.invalid/\n",
            ("https://me:100%@one.invalid/", [], []),
            id="a percent sign is text",
        ),
    ],
)
def test_pip_settings(text, expected):
    """pip.conf in its forms."""
    found = pip_settings(text, "pip.conf")
    assert expected == (found["default"], found["extra"], found["find_links"])


@pytest.mark.parametrize(
    ("name", "text"),
    [(".config/uv/uv.toml", "index-url = "), (".config/pip/pip.conf", "index-url = x"), (".pip/pip.conf", "[a\n")],
)
def test_a_settings_file_that_cannot_be_read_is_named(home, name, text):
    """A broken file is a usage error that names it: ignoring it would send the user to the wrong index."""
    put(home, name, text)
    with pytest.raises(UsageError, match=name.rsplit("/", 1)[-1]):
        read_indexes()


def test_a_settings_file_that_is_not_text_is_named(home):
    """Likewise one that is not UTF-8."""
    put(home, ".config/pip/pip.conf", "").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="cannot be read"):
        read_indexes()
