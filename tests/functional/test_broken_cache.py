"""uv's cache lost what it says it has: the packages are named, fetched anew, and the installation ends well."""

from __future__ import annotations

import shutil

import pytest

from verl_env.environment.broken_cache import broken_in_cache


@pytest.fixture
def cached(tiny, tmp_path):
    """Return verl-env after an installation whose environment is gone, with a cache of its own that has everything."""
    tiny.environ["UV_CACHE_DIR"] = str(tmp_path / "uv")
    done = tiny("install", "--cpu", "--json")
    assert 0 == done.code, done.err
    shutil.rmtree(done.json["data"]["folder"])
    tiny.current.unlink()
    return tiny, tmp_path / "uv"


def test_unpacked_wheels_that_are_damaged(cached):
    """What says how to install a wheel is gone from the cache: it is fetched anew, and that is said."""
    tool, cache = cached
    (damaged,) = cache.glob("archive-v0/*/torch-*.dist-info/WHEEL")
    damaged.unlink()
    done = tool("install", "--cpu")
    assert (0, True) == (done.code, tool.current.exists()), done.err
    assert "uv's cache is broken for torch: " in done.err


def test_unpacked_wheels_that_are_gone_and_no_index(cached):
    """Nowhere to fetch them from: exit 5, and nothing is left that looks like an environment."""
    tool, cache = cached
    for it in (cache / "archive-v0").iterdir():
        shutil.rmtree(it)
    tool.index.stop()
    done = tool("install", "--cpu")
    assert (5, False) == (done.code, tool.current.exists())
    assert not any((tool.data / "environments").glob("tiny*"))


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        pytest.param(
            "error: Failed to install: torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl (torch==2.13.0+cpu)\n"
            "  cause: failed to read directory `/cache/archive-v0/RX`: No such file or directory (os error 2)",
            ("torch",),
            id="a folder of the cache is gone",
        ),
        pytest.param(
            "Failed to install: nvidia_cuda_runtime_cu12-12.9.79-py3-none-any.whl (…)\n  cause: The wheel is invalid",
            ("nvidia-cuda-runtime-cu12",),
            id="an invalid wheel",
        ),
        pytest.param(
            "Failed to install: torch-2.13.0-py3-none-any.whl\n  cause: No space left on device (os error 28)",
            (),
            id="the target is full",
        ),
        pytest.param("Hash mismatch for `torch==2.13.0`", (), id="another fault"),
    ],
)
def test_words_of_uv(said, expected):
    """Only what uv could not take from its own cache."""
    assert expected == broken_in_cache(said)
