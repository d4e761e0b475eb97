"""One incoherent set of each kind: `check` names its rule for a lockfile, and `capture` writes no lock of it."""

from __future__ import annotations

import hashlib

import pytest

from tiny import build_wheel
from verl_env.lock.coherence import RULES

CU12 = ("nvidia-cuda-runtime-cu12==12.8.90", "nvidia-cublas-cu12==12.8.4.1")
SETS = [
    pytest.param("two-cuda-majors", ("torch==2.6.0+cu118", *CU12), id="two-cuda-majors"),
    pytest.param("cuda-bindings-major", ("cuda-python==13.0.3", *CU12), id="cuda-bindings-major"),
    pytest.param("nvcc-minor", ("nvidia-cuda-nvcc==13.5.37", "nvidia-cuda-runtime==13.0.96"), id="nvcc-minor"),
    pytest.param("cpu-torch-beside-cuda", ("torch==2.9.0+cpu", *CU12), id="cpu-torch-beside-cuda"),
    pytest.param("torch-family", ("torch==2.11.0", "torchvision==0.25.0"), id="torch-family"),
    pytest.param("engine-torch", ("vllm==0.9.0", "torch==2.8.0"), id="engine-torch"),
    pytest.param(
        "built-for-another-torch", ("flashinfer==0.1.6+cu124torch2.4", "torch==2.5.1+cu124"), id="another-torch"
    ),
    pytest.param(
        "flashinfer-versions", ("flashinfer-python==0.6.12", "flashinfer-cubin==0.6.11"), id="flashinfer-versions"
    ),
    pytest.param("wrong-project", ("apex==0.9.10.dev0",), id="wrong-project"),
    pytest.param("path-clash", ("pytorch-triton==3.3.1", "triton==3.3.0"), id="path-clash"),
]
# What only a lockfile shows: an artifact, its hash, its Python, a toolkit stated beside.
LOCKS = [
    pytest.param("artifact-without-hash", ("numpy==2.0.0",), {"hashed": False}, id="artifact-without-hash"),
    pytest.param("duplicate-package", ("numpy==2.0.0", "numpy==2.0.1"), {}, id="duplicate-package"),
    pytest.param("wheel-for-another-python", ("numpy==2.0.0",), {"tag": "cp310-cp310-linux_x86_64"}, id="python"),
    pytest.param("other-cuda", CU12, {"cuda": "13.0"}, id="other-cuda"),
]


def pylock(specs, *, hashed=True, tag="py3-none-any", cuda=None) -> str:
    """Return a PEP 751 file of these packages."""
    lines = ['lock-version = "1.0"', 'requires-python = "==3.12.*"', 'created-by = "tests"']
    for spec in specs:
        name, _, version = spec.partition("==")
        url = f"https://index.example/{name.replace('-', '_')}-{version.replace('+', '%2B')}-{tag}.whl"
        digest = hashlib.sha256(spec.encode()).hexdigest() if hashed else ""
        hashes = f'hashes = {{sha256 = "{digest}"}}' if hashed else "hashes = {}"
        lines += ["[[packages]]", f'name = "{name}"', f'version = "{version}"']
        lines += [f'wheels = [{{url = "{url}", {hashes}}}]']
    lines += ["[tool.verl-env]", f'cuda = "{cuda}"'] if cuda else []
    return "\n".join(lines) + "\n"


def test_every_rule_is_here():
    """No rule is left out: that of environments alone has its own test (test_check_and_diff.py)."""
    named = {it.values[0] for it in (*SETS, *LOCKS)}
    assert {"requirement-broken"} == set(RULES) - named


@pytest.mark.parametrize(("rule", "specs", "how"), [*(pytest.param(*it.values, {}, id=it.id) for it in SETS), *LOCKS])
def test_a_lockfile(tool, rule, specs, how):
    """Exit code 8; the rule, the packages, why, and what to write; with --allow, 0."""
    path = tool.home / "pylock.toml"
    path.write_text(pylock(specs, **how))
    done = tool("check", path, "--json")
    found = done.json["data"]["findings"]
    assert (8, [rule]) == (done.code, [it["rule"] for it in found]), done.out
    assert all(found[0][key] for key in ("what", "packages", "why", "remedy"))
    assert 0 == tool("check", path, "--allow", rule).code


@pytest.mark.parametrize(("rule", "specs"), SETS)
def test_no_lock_is_written(tool, serve, tmp_path, rule, specs):
    """Exit code 10 with the rule's name and no file; with --allow it is written, and remembers that."""
    for spec in specs:
        build_wheel(tmp_path / "wheels", *spec.split("=="))
    tool.index = serve(tmp_path / "wheels")
    path = tool.home / "freeze.txt"
    path.write_text("".join(f"{it}\n" for it in specs))
    words = ["capture", "--from", path, "--python", "3.12"]
    done = tool(*words)
    assert (10, "", []) == (done.code, done.out, list(tool.work.iterdir())), done.err
    assert (1, True) == (done.err.count("error: "), f"{rule}: " in done.err)
    done = tool(*words, "--allow", rule)
    assert 0 == done.code, done.err
    assert f'"{rule}"' in (tool.work / "pylock.captured.toml").read_text()
    assert 0 == tool("lock", "--check").code
