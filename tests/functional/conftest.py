"""An environment that is installed once for the tests that only look at it."""

from __future__ import annotations

import pytest

from tiny import Index, Site, Tool, build_wheel, serve_index

# A program of an environment, a module that looks around, and values that shells could misread.
LOOK = """
import json, os, sys

def main():
    print(json.dumps({"argv": sys.argv[1:], "env": dict(os.environ), "path": sys.path, "prefix": sys.prefix}))
    return int(os.environ.get("LOOK_EXIT", "0"))
"""
ODD = 'it\'s "odd" $HOME `id` \\n * é'


@pytest.fixture(scope="package")
def installed(tmp_path_factory, wheels):
    """Return verl-env with one environment in use; tests leave it as it is."""
    folder = tmp_path_factory.mktemp("installed")
    look = build_wheel(
        folder / "wheels",
        "look",
        "1.0",
        files={"look.py": LOOK, "look-1.0.dist-info/entry_points.txt": "[console_scripts]\nlook = look:main\n"},
    )
    for name in ("torch", "verl", "tiny-sub"):
        (folder / "wheels" / wheels[name].name).write_bytes(wheels[name].read_bytes())
    site = Site(folder=folder / "site")
    chosen = [*(wheels[name] for name in ("torch", "verl", "tiny-sub")), look]
    site.add_row("tiny", chosen, exports={"TINY_ODD": ODD, "TINY_EMPTY": ""}, settings=["a.b=sdpa"])
    tool = Tool(home=folder / "home", work=folder / "work", site=site)
    for made in (tool.home, tool.work):
        made.mkdir()
    tool.index = serve_index(Index(folder=folder / "wheels"))
    done = tool("install", "--cpu")
    assert 0 == done.code, done.err
    tool.index.stop()
    return tool
