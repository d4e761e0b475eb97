"""Which wheels a Python on a Linux installs, for another machine than this one."""

from __future__ import annotations

import pytest

from verl_env.matrix.tags import rank_of, supported_tags


@pytest.mark.parametrize(
    ("file", "installs"),
    [
        pytest.param("a-1-py3-none-any.whl", True, id="pure"),
        pytest.param("a-1-cp312-cp312-manylinux_2_28_x86_64.whl", True, id="its own tag"),
        pytest.param("a-1-cp312-cp312-manylinux_2_32_x86_64.whl", False, id="a newer glibc"),
        pytest.param("a-1-cp311-cp311-manylinux_2_28_x86_64.whl", False, id="another Python"),
        pytest.param("a-1-cp38-abi3-manylinux_2_28_x86_64.whl", True, id="the stable ABI of an older Python"),
        pytest.param("a-1-cp313-abi3-manylinux_2_28_x86_64.whl", False, id="the stable ABI of a newer Python"),
        pytest.param("a-1-cp312-cp312-manylinux_2_28_aarch64.whl", False, id="another architecture"),
        pytest.param("a-1-cp312-cp312-manylinux2014_x86_64.whl", True, id="legacy tag"),
        pytest.param("a-1-cp312-cp312-manylinux1_x86_64.whl", True, id="the oldest legacy tag"),
        pytest.param("a-1-cp312-cp312-linux_x86_64.whl", True, id="built on a machine like it"),
        pytest.param("a-1-cp312-cp312-musllinux_1_2_x86_64.whl", False, id="musl"),
        pytest.param("a-1-cp312-cp312-win_amd64.whl", False, id="Windows"),
        pytest.param("a-1-py2.py3-none-any.whl", True, id="compressed"),
    ],
)
def test_what_installs(file, installs):
    """PEP 425 and PEP 600, for CPython 3.12 on x86_64 with glibc 2.31."""
    assert installs == (rank_of(file, supported_tags("3.12", "x86_64", "2.31")) is not None)


def test_rank_prefers_what_an_installer_prefers():
    """The interpreter's own ABI before the stable one before pure Python; a newer glibc before an older."""
    tags = supported_tags("3.12", "x86_64", "2.31")
    files = (
        "a-1-cp312-cp312-manylinux_2_31_x86_64.whl",
        "a-1-cp312-cp312-manylinux_2_17_x86_64.whl",
        "a-1-cp312-abi3-manylinux_2_31_x86_64.whl",
        "a-1-cp38-abi3-manylinux_2_31_x86_64.whl",
        "a-1-py3-none-any.whl",
    )
    ranks = [rank_of(file, tags) for file in files]
    assert sorted(ranks) == ranks
