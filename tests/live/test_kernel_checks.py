"""The checks of the `kernel` level, on the CPU where their libraries allow it: the same code, another device.

What a wrong kernel would give is given to them too: a check that cannot fail shows nothing.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from real import RealTool
from tiny import ROOT

pytestmark = [pytest.mark.live, pytest.mark.network]

PROGRAM = ROOT / "installer/verl_env/proof/inside/run_check.py"
ON_CPU = Path(__file__).with_name("on_cpu")
# verl wraps with FSDP 2 on the CPU: FSDP 1 wants a GPU.
SETTINGS = (
    "+actor_rollout_ref.model.override_config.attn_implementation=sdpa",
    "actor_rollout_ref.model.use_remove_padding=False",
    "actor_rollout_ref.actor.strategy=fsdp2",
)
# What a kernel that does something else would do, before the check looks.
WRONG = {
    "kernel_torch:matmul": "import torch; was = torch.Tensor.__matmul__; "
    "torch.Tensor.__matmul__ = lambda a, b: was(a, b) if a.dtype == torch.float64 else was(a, b) * 1.1",
    "kernel_torch:attention": "import torch.nn.functional as f; was = f.scaled_dot_product_attention; "
    "f.scaled_dot_product_attention = lambda q, k, v, is_causal: was(q, k, v, is_causal=q.dtype.itemsize == 8)",
    "kernel_nccl:collectives": "import kernel_nccl; kernel_nccl.check_sums = lambda *_: kernel_nccl.expect(0, 1, 'sum')",
}


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """Install the CPU row with this machine's own settings and uv cache; return its Python."""
    folder = tmp_path_factory.mktemp("kernels")
    tool = RealTool(home=folder / "home", work=folder)
    done = tool("install", "--cpu", "--level", "files", "--json")
    assert 0 == done.code, done.err
    yield Path(done.json["data"]["folder"]) / "bin/python"
    subprocess.run(["rm", "-rf", folder], check=True)


def run(python, tmp_path, *words, program=PROGRAM):
    """Run one check in an environment; return its exit code, last line and all that it said."""
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PYTHONPATH": str(ON_CPU)}
    done = subprocess.run(
        [python, program, *words], cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=900, check=False
    )
    return done.returncode, (done.stdout.strip().splitlines() or [""])[-1], done.stdout + done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param(["kernel_torch:matmul", "cpu"], "bfloat16 off by", id="matmul"),
        pytest.param(["kernel_torch:attention", "cpu"], "flash_attention off by", id="attention"),
        pytest.param(["kernel_nccl:collectives", "cpu"], "over 2 processes: right sums", id="collectives"),
        pytest.param(["kernel_ray:actor", "cpu"], "1 actors, GPU 0 of the CPU", id="ray"),
        pytest.param(["kernel_verl:fsdp_actor", "cpu", *SETTINGS], "attention sdpa, FSDP", id="verl"),
    ],
)
def test_a_check_passes_on_the_cpu(python, tmp_path, words, said):
    """The right answer is recognised."""
    code, last, everything = run(python, tmp_path, *words)
    assert 0 == code, everything
    assert said in last


@pytest.mark.parametrize("check", WRONG)
def test_a_wrong_answer_is_no_pass(python, tmp_path, check):
    """A kernel that computes something else fails the check that it is for."""
    program = tmp_path / "wrong.py"
    program.write_text(
        f"import sys; sys.path.insert(0, {str(PROGRAM.parent)!r})\n{WRONG[check]}\nimport run_check\n"
        "if __name__ == '__main__':\n    run_check.main()\n"
    )
    code, _, everything = run(python, tmp_path, check, "cpu", program=program)
    assert (1, True) == (code, "CheckError" in everything), everything


def test_copies_need_two_gpus(python, tmp_path):
    """One device is no pair: 77, and why."""
    assert (77, "one GPU, and so no pair") == run(python, tmp_path, "kernel_torch:copies", "cpu")[:2]


def test_a_gpu_is_asked_for_and_is_not_there(python, tmp_path):
    """The CPU never stands in for a GPU unasked."""
    code, _, everything = run(python, tmp_path, "kernel_torch:matmul", "cuda")
    assert (1, True) == (code, "Error" in everything)


def test_engines_are_held_against_transformers(python, tmp_path):
    """Answers of the same model in bfloat16 are near enough; those of one that sees no positions are not."""
    program = tmp_path / "engine.py"
    program.write_text(ENGINE)
    done = subprocess.run(
        [python, program, PROGRAM.parent], cwd=tmp_path, capture_output=True, text=True, timeout=900, check=False
    )
    assert 0 == done.returncode, done.stdout + done.stderr
    right, wrong = done.stdout.strip().splitlines()[-2:]
    assert right.startswith("3 times 12 tokens, log-probabilities within 0.")
    assert "their log-probabilities are up to" in wrong


ENGINE = """
import sys, tempfile
sys.path.insert(0, sys.argv[1])
import torch
from expecting import CheckError
from kernel_engines import PROMPTS, TOKENS, compare
from tiny import small_model_folder
from transformers import AutoModelForCausalLM

def generate(model, **more):
    found = []
    for prompt in PROMPTS:
        ids, logprobs = list(prompt), []
        for _ in range(TOKENS):
            inputs = torch.tensor([ids])
            other = {name: make(inputs) for name, make in more.items()}
            with torch.no_grad():
                best = model(input_ids=inputs, **other).logits[0, -1].float().log_softmax(-1).max(-1)
            ids.append(int(best.indices))
            logprobs.append(float(best.values))
        found.append((ids[len(prompt):], logprobs))
    return found

with tempfile.TemporaryDirectory() as folder:
    reference = small_model_folder(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    print(compare(reference, generate(model)))
    try:
        print(compare(reference, generate(model, position_ids=torch.zeros_like)))
    except CheckError as err:
        print(err)
"""
