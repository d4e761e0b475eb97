"""The folder of verl-env that an agent on a node works from."""

from __future__ import annotations

import hashlib
import os
import time
import zipfile
from pathlib import Path

import pytest

from verl_env.cluster.agent_child import AgentError, _tool, tool_path


@pytest.fixture
def sent(tmp_path):
    """Return a home, and the sha256 of the archive that was sent to it."""
    packed = tmp_path / "packed.zip"
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("verl_env/__init__.py", "")
    digest = hashlib.sha256(packed.read_bytes()).hexdigest()
    place = Path(tool_path(str(tmp_path), digest))
    place.parent.mkdir(parents=True)
    packed.rename(place)
    return tmp_path, digest


def test_a_tool_in_use_does_not_look_old(sent):
    """`prune` goes by the folder's time: one that was unpacked long ago and is used now must not go."""
    folder = _tool(*sent)
    os.utime(folder, (0, 0))
    assert folder == _tool(*sent)
    assert time.time() - folder.stat().st_mtime < 3600


def test_a_damaged_archive_is_refused(sent):
    """Nothing is unpacked from bytes that differ from what was sent."""
    home, digest = sent
    Path(tool_path(str(home), digest)).write_bytes(b"damaged")
    with pytest.raises(AgentError, match="damaged"):
        _tool(home, digest)
    assert [f"{digest[:20]}.zip"] == os.listdir(home / "self" / "cluster")
