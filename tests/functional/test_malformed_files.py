"""Whatever is handed to a command that reads a file: one clear error with a hint, nothing secret, and no file left."""

from __future__ import annotations

import pytest

from malformed import FILES, OTHERS, SECRET, lay

READERS = {
    "check": lambda path: ("check", path),
    "diff": lambda path: ("diff", path, "cpu"),
    "capture --from": lambda path: ("capture", "--from", path),
    "lock --check": lambda path: ("lock", "--check", path),
    "lock --format": lambda path: ("lock", "--format", "requirements", path),
    "-r": lambda path: ("lock", "--cpu", "-r", path),
    "install": lambda path: ("install", path),
}
CASES = [
    pytest.param(reader, case, id=f"{reader}: {case if isinstance(case, str) else case.id}")
    for reader in READERS
    for case in (*FILES, *OTHERS)
    if isinstance(case, str) or reader not in case.fine_for
]


@pytest.mark.parametrize(("reader", "case"), CASES)
def test_one_error(tiny, reader, case):
    """Exit code 2 (no such list) or 10 (no such lockfile); no index is asked, no environment begun."""
    path = lay(tiny.home / "given", case)
    done = tiny(*READERS[reader](path))
    assert done.code in (2, 10), (done.code, done.err)
    assert (1, 1) == (done.err.count("error: "), done.err.count("hint: ")), done.err
    assert ("", False, False) == (done.out, "Traceback" in done.err, SECRET in done.err)
    assert len(done.err) < 3_000, done.err[:500]
    assert ([], []) == (list(tiny.work.iterdir()), tiny.index.asked)
    assert not tiny.data.exists()
