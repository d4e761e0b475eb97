"""The inference engines generate from a small model made on the spot; each token's probability is compared.

The comparison is with transformers in float32 on the CPU: an engine that loads and answers nonsense does not pass.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile

from expecting import CheckError, Skip, expect
from kernel_torch import devices
from tiny import small_model_folder

PROMPTS = ([1, 5, 9, 20, 33], [1, 40, 41, 42, 43, 44, 45, 46, 47], [1, 7])
TOKENS = 12
NEAR = 0.15  # of a log-probability: bfloat16 moves those of this model by a few hundredths, a wrong kernel by ones


def vllm(on, parallel):
    """vLLM, compiled and with CUDA graphs, as verl uses it; `parallel` is the tensor parallel size."""
    os.environ.setdefault("VLLM_WORKER_MULTIPROC_METHOD", "spawn")
    os.environ.setdefault("VLLM_ALLREDUCE_USE_SYMM_MEM", "0")
    if int(parallel) > 1:  # its sampler's first use compiles for more than a minute; the check on one GPU shows it
        os.environ.setdefault("VLLM_USE_FLASHINFER_SAMPLER", "0")
    kinds = _enough(on, int(parallel))
    import vllm as engine

    with tempfile.TemporaryDirectory() as folder:
        model = small_model_folder(folder)
        llm = engine.LLM(
            model=folder, dtype="bfloat16", tensor_parallel_size=int(parallel), gpu_memory_utilization=0.3,
            max_model_len=128, max_num_seqs=4, num_gpu_blocks_override=512, seed=0, **_without_multicast(),
        )  # fmt: skip
        sampling = engine.SamplingParams(temperature=0.0, max_tokens=TOKENS, ignore_eos=True, logprobs=1)
        outputs = llm.generate([{"prompt_token_ids": prompt} for prompt in PROMPTS], sampling)
        answers = [output.outputs[0] for output in outputs]
        found = [
            (list(it.token_ids), [each[token].logprob for token, each in zip(it.token_ids, it.logprobs, strict=True)])
            for it in answers
        ]
        said = compare(model, found)
        del llm
    _end_children()
    return f"vllm {engine.__version__}, tensor parallel {parallel}: {said} on {kinds}"


def _without_multicast():
    """Return what keeps vLLM's compiler from all-reduces that may use NVLink multicast; older ones have none."""
    try:
        from vllm.config import PassConfig
    except ImportError:
        return {}
    passes = [name for name in ("fuse_allreduce_rms", "enable_sp", "fuse_gemm_comms") if hasattr(PassConfig, name)]
    return {"compilation_config": {"pass_config": dict.fromkeys(passes, False)}} if passes else {}


def sglang(on, parallel):
    """SGLang, likewise."""
    kinds = _enough(on, int(parallel))
    import sglang as engine

    with tempfile.TemporaryDirectory() as folder:
        model = small_model_folder(folder)
        llm = engine.Engine(
            model_path=folder, dtype="bfloat16", tp_size=int(parallel), mem_fraction_static=0.3, context_length=128,
            max_running_requests=4, max_total_tokens=4096, cuda_graph_max_bs=4, random_seed=0, log_level="error",
        )  # fmt: skip
        sampling = {"temperature": 0.0, "max_new_tokens": TOKENS, "ignore_eos": True}
        outputs = llm.generate(input_ids=[list(it) for it in PROMPTS], sampling_params=sampling, return_logprob=True)
        tokens = [output["meta_info"]["output_token_logprobs"] for output in outputs]
        said = compare(model, [([it[1] for it in each], [it[0] for it in each]) for each in tokens])
        llm.shutdown()
    _end_children()
    return f"sglang {engine.__version__}, tensor parallel {parallel}: {said} on {kinds}"


def compare(model, found):
    """Hold each generated token's log-probability against the reference's; greedy takes the best."""
    import torch

    worst = 0.0
    for prompt, (tokens, logprobs) in zip(PROMPTS, found, strict=True):
        expect(TOKENS, len(tokens), "tokens generated")
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([[*prompt, *tokens]])).logits[0, len(prompt) - 1 : -1]
        right = logits.log_softmax(-1)
        chosen = right.gather(-1, torch.tensor(tokens)[:, None])[:, 0]
        apart = float((chosen - torch.tensor(logprobs)).abs().max())
        short = float((right.max(-1).values - chosen).max())
        if not max(apart, short) < NEAR:
            raise CheckError(
                f"after {prompt} it gave {tokens}: their log-probabilities are up to {apart:.2f} from the reference's, "
                f"and up to {short:.2f} below the best token's"
            )
        worst = max(worst, apart)
    return f"{len(found)} times {TOKENS} tokens, log-probabilities within {worst:.3f} of transformers'"


def _enough(on, parallel):
    """Return the names of the GPUs; skip when there are fewer than asked for."""
    places, kinds = devices(on)
    if len(places) < parallel:
        raise Skip(f"tensor parallel {parallel} needs {parallel} GPUs; {len(places)} to use here")
    return kinds


def _end_children():
    """End what the engine left running: the next check wants the GPU's memory."""
    for child in multiprocessing.active_children():
        child.terminate()
        child.join(10)
