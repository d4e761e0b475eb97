"""What of uv's command line every user of a machine may read."""

from __future__ import annotations

import pytest

from verl_env.uv import hide_logins

OPEN, LOGIN, TOKEN = "https://one.invalid/", "https://me:secret@two.invalid/", "https://token@three.invalid/"


@pytest.mark.parametrize(
    ("words", "kept", "variables"),
    [
        pytest.param(["pip", "sync", "--index", OPEN], ["pip", "sync", "--index", OPEN], {}, id="nothing to hide"),
        pytest.param(["--default-index", LOGIN, "-q"], ["-q"], {"UV_DEFAULT_INDEX": LOGIN}, id="the default"),
        pytest.param(
            ["--index", OPEN, "--index", LOGIN], [], {"UV_INDEX": f"{OPEN} {LOGIN}"}, id="all of a kind, in their order"
        ),
        pytest.param(
            ["--find-links", TOKEN, "--index", OPEN], ["--index", OPEN], {"UV_FIND_LINKS": TOKEN}, id="a page of links"
        ),
        pytest.param(["compile", "a@b"], ["compile", "a@b"], {}, id="no option of an index"),
    ],
)
def test_hide_logins(words, kept, variables):
    """Index options that hold a login become variables; the others stay."""
    assert (kept, variables) == hide_logins(words)
