"""Where models and kernels are kept."""

from __future__ import annotations

import pytest

from verl_env.environment.caches import find_caches
from verl_env.node.facts import Folder

BIG, SMALL = 900_000_000_000, 2_000_000_000
MOVED = ("HF_HOME", "FLASHINFER_WORKSPACE_BASE", "HF_XET_CACHE", "TRITON_CACHE_DIR", "VLLM_CACHE_ROOT")


def caches(tmp_path, *, free=BIG, ours=BIG, temporary=BIG, writable=True, environ=None):
    """Return the exports by name, for a home with so much room, our place, and the folder of temporary files."""

    def probe(folders):
        def folder(role, path):
            at = str(path)
            inside = at.startswith(str(tmp_path / "user"))
            room = ours if at.startswith(str(tmp_path / "ours")) else free if inside else temporary
            return Folder(role=role, path=at, source="tests", free_bytes=room, writable=writable or not inside)

        return tuple(folder(role, path) for role, path in folders.items())

    (tmp_path / "user").mkdir(exist_ok=True)
    return {it.name: it for it in find_caches(environ or {}, tmp_path / "user", tmp_path / "ours", probe)}


def test_defaults_stay_where_there_is_room(tmp_path):
    """A roomy home keeps what programs do by themselves; HF_HOME is named in any case."""
    found = caches(tmp_path)
    assert {"HF_HOME": str(tmp_path / "user/.cache/huggingface")} == {it.name: it.value for it in found.values()}


def test_a_small_home_is_spared(tmp_path):
    """With 2 GB at home and more at ours, every cache goes to ours; inductor's is in the folder of temporary files."""
    found = caches(tmp_path, free=SMALL)
    assert set(MOVED) == set(found)
    assert {True} == {it.value.startswith(str(tmp_path / "ours")) for it in found.values()}
    assert {"TORCHINDUCTOR_CACHE_DIR"} == set(caches(tmp_path, temporary=SMALL)) - {"HF_HOME"}


@pytest.mark.parametrize(
    ("free", "ours", "writable", "moved"),
    [
        pytest.param(SMALL, SMALL, True, False, id="no more room at ours"),
        pytest.param(30_000_000_000, BIG, True, False, id="enough for kernels"),
        pytest.param(BIG, SMALL, False, True, id="a home that cannot be written"),
    ],
)
def test_kernels_move_only_for_a_reason(tmp_path, free, ours, writable, moved):
    """A place without room is left for one with more; one that cannot be written for any other."""
    assert moved == ("TRITON_CACHE_DIR" in caches(tmp_path, free=free, ours=ours, writable=writable))


def test_a_set_variable_is_kept(tmp_path):
    """What the user has set is exported as it is, and said to be so."""
    environ = {"HF_HOME": "/models", "TRITON_CACHE_DIR": "/kernels"}
    found = caches(tmp_path, free=SMALL, environ=environ)
    assert environ == {name: found[name].value for name in environ}
    assert {"it was set"} == {found[name].why for name in environ}


def test_models_that_are_there_are_kept(tmp_path):
    """A default cache with content stays, however little room is left; what is fetched in parts goes elsewhere."""
    (tmp_path / "user/.cache/huggingface/hub/models--a--b").mkdir(parents=True)
    found = caches(tmp_path, free=SMALL)
    assert str(tmp_path / "user/.cache/huggingface") == found["HF_HOME"].value
    assert str(tmp_path / "ours/huggingface/xet") == found["HF_XET_CACHE"].value


def test_a_token_stays_known(tmp_path):
    """When HF_HOME moves, the token that is there already is named."""
    (tmp_path / "user/.cache/huggingface").mkdir(parents=True)
    (tmp_path / "user/.cache/huggingface/token").write_text("hf_x")
    found = caches(tmp_path, free=SMALL)
    assert str(tmp_path / "user/.cache/huggingface/token") == found["HF_TOKEN_PATH"].value


def test_xdg_moves_the_defaults(tmp_path):
    """XDG_CACHE_HOME is where Hugging Face and vLLM look by default; flashinfer and Triton do not."""
    found = caches(tmp_path, free=SMALL, environ={"XDG_CACHE_HOME": "/roomy"})
    assert "/roomy/huggingface" == found["HF_HOME"].value
    assert {"FLASHINFER_WORKSPACE_BASE", "TRITON_CACHE_DIR"} == set(found) - {"HF_HOME"}
