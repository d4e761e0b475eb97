"""`verl-env install`: real uv, real environments, tiny wheels."""

from __future__ import annotations


def test_install_builds_proves_and_switches(tiny):
    """The newest row is chosen, installed, imported and made current."""
    done = tiny("install", "--json", "--cpu")
    print(done.err)
    assert 0 == done.code, done.err
