"""The `behaviour` level: what imports well may still die on its first call. No GPU is used.

Interfaces of verl and the engines moved between releases: each check takes whichever of the known ones is there, and
fails when none is.
"""

from __future__ import annotations

import importlib.util
import pickle
import tempfile
from pathlib import Path

from expecting import CheckError, expect, first_attribute
from tiny import TEXT, tiny_config, tiny_model_folder


def _round_trip(load):
    """Load a tiny tokenizer with an engine's own loader, encode and decode."""
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = load(tiny_model_folder(folder))
        ids = tokenizer.encode(TEXT, add_special_tokens=False)
        expect(len(TEXT.split()), len(ids), "tokens")
        expect(TEXT.split(), tokenizer.decode(ids).split(), "decoded text")
        if not tokenizer.all_special_ids:
            raise CheckError("the tokenizer lost its special tokens")
    return f"{load.__module__}.{load.__qualname__}"


def vllm_tokenizer():
    """vLLM's loader wraps the transformers class and reads attributes that releases of transformers removed."""
    return _round_trip(
        first_attribute("vllm.tokenizers:get_tokenizer", "vllm.transformers_utils.tokenizer:get_tokenizer")
    )


def sglang_tokenizer():
    """SGLang's loader."""
    return _round_trip(
        first_attribute(
            "sglang.srt.utils.hf_transformers_utils:get_tokenizer",
            "sglang.srt.hf_transformers_utils:get_tokenizer",
        )
    )


def verl_tokenizer():
    """What the trainer calls first."""
    return _round_trip(first_attribute("verl.utils:hf_tokenizer"))


def tiny_model():
    """Forward, backward and a step of a tiny Llama and a tiny Qwen2: the loss must fall."""
    import torch
    from transformers import AutoModelForCausalLM

    said = []
    for kind in ("Llama", "Qwen2"):
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(tiny_config(kind))
        tokens = torch.arange(4, 12).reshape(2, 4)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        before = model(input_ids=tokens, labels=tokens).loss
        before.backward()
        optimizer.step()
        after = model(input_ids=tokens, labels=tokens).loss
        if not after < before:
            raise CheckError(f"{kind}: loss {before.item():.3f} -> {after.item():.3f}")
        said.append(f"{kind} {before.item():.3f} -> {after.item():.3f}")
    return ", ".join(said)


def data_proto():
    """verl's batch: tensordict and numpy object arrays, repeated, chunked, joined, pickled."""
    import numpy as np
    import torch
    from verl import DataProto

    data = DataProto.from_dict(
        tensors={"x": torch.arange(8).reshape(4, 2)},
        non_tensors={"name": np.array(list("abcd"), dtype=object)},
    )
    expect(8, len(data.repeat(repeat_times=2, interleave=True)), "repeat")
    parts = data.chunk(2)
    expect([2, 2], [len(part) for part in parts], "chunk")
    joined = pickle.loads(pickle.dumps(DataProto.concat(parts)))  # noqa: S301 - our own bytes
    expect(data.batch["x"].tolist(), joined.batch["x"].tolist(), "concat, pickle")
    expect(list("abcd"), list(joined.non_tensor_batch["name"]), "concat of objects")
    return "from_dict, repeat, chunk, concat, pickle"


def grpo_advantage():
    """verl's own arithmetic: a rewarded answer has a positive advantage, its sibling a negative one."""
    import numpy as np
    import torch
    from verl.trainer.ppo import core_algos

    rewards = torch.tensor([[0.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
    mask, group = torch.ones(2, 3), np.array(["a", "a"], dtype=object)
    advantages, _ = core_algos.compute_grpo_outcome_advantage(rewards, mask, group)
    if not advantages[0, 0] > 0 > advantages[1, 0]:
        raise CheckError(f"advantages {advantages.tolist()}")
    return f"advantages {advantages[:, 0].tolist()}"


def trainer_config(*settings):
    """Compose the PPO trainer's config as main_ppo does, with the settings that the row asks for."""
    import verl
    from hydra import compose, initialize_config_dir
    from omegaconf import OmegaConf

    folder = str(Path(verl.__file__).parent / "trainer" / "config")
    with initialize_config_dir(config_dir=folder, version_base=None):
        config = compose(config_name="ppo_trainer", overrides=list(settings))
        if OmegaConf.is_missing(config.actor_rollout_ref.rollout, "name"):  # no default engine from 0.6 on
            engine = next((it for it in ("sglang", "vllm") if importlib.util.find_spec(it)), "hf")
            overrides = [*settings, f"actor_rollout_ref.rollout.name={engine}"]
            config = compose(config_name="ppo_trainer", overrides=overrides)
    if not config.algorithm.adv_estimator:
        raise CheckError("the composed config has no algorithm.adv_estimator")
    lines = OmegaConf.to_yaml(config, resolve=False).splitlines()
    return f"{len(lines)} lines, rollout {config.actor_rollout_ref.rollout.name}, {len(settings)} settings"


def parquet_dataset():
    """RLHFDataset over a parquet file: pyarrow, pandas, datasets and the tokenizer together."""
    import pandas as pd
    from omegaconf import OmegaConf
    from transformers import AutoTokenizer
    from verl.utils.dataset.rl_dataset import RLHFDataset

    rows = {
        "prompt": [[{"role": "user", "content": TEXT}]] * 3,
        "data_source": ["t"] * 3,
        "reward_model": [{"ground_truth": "mat", "style": "rule"}] * 3,
        "extra_info": [{"index": number} for number in range(3)],
    }
    options = {
        "prompt_key": "prompt", "max_prompt_length": 16, "filter_overlong_prompts": False, "truncation": "error",
        "filter_overlong_prompts_workers": 1, "shuffle": False, "seed": 1, "use_shm": False,
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = AutoTokenizer.from_pretrained(tiny_model_folder(folder))
        tokenizer.chat_template = "{% for message in messages %}{{ message['content'] }} {% endfor %}"
        path = str(Path(folder) / "data.parquet")
        pd.DataFrame(rows).to_parquet(path)
        try:
            config = OmegaConf.create({**options, "cache_dir": folder})
            dataset = RLHFDataset(data_files=path, tokenizer=tokenizer, config=config)
        except TypeError:  # before 0.3 the options were plain arguments
            dataset = RLHFDataset(
                parquet_files=path,
                tokenizer=tokenizer,
                prompt_key="prompt",
                max_prompt_length=16,
                cache_dir=folder,
            )
        expect(3, len(dataset), "rows")
        keys = sorted(dataset[0])
    return f"3 rows; {', '.join(keys[:4])} …"


def ray_actor():
    """A Ray actor that keeps state and takes arrays."""
    import numpy as np
    import ray

    # "local": a cluster that runs on this machine is not joined, and not disturbed
    ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False)

    @ray.remote
    class Counter:
        def __init__(self):
            self.value = 0

        def add(self, array):
            self.value += int(array.sum())
            return self.value

    counter = Counter.remote()
    expect(6, ray.get(counter.add.remote(np.arange(4)), timeout=180), "first call")
    expect(10, ray.get(counter.add.remote(np.ones(4)), timeout=60), "second call")
    ray.shutdown()
    return f"ray {ray.__version__}"


def verl_worker_group():
    """verl's single controller: a DataProto dispatched to a Worker under Ray, on the CPU."""
    import ray
    import torch
    from verl import DataProto
    from verl.single_controller.base import Worker
    from verl.single_controller.base.decorator import Dispatch, register
    from verl.single_controller.ray import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup

    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)

    @ray.remote
    class Doubler(Worker):
        @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO)
        def double(self, data):
            data.batch["x"] = data.batch["x"] * 2
            return data

    pool = RayResourcePool([1], use_gpu=False, max_colocate_count=1)
    group = RayWorkerGroup(pool, RayClassWithInitArgs(cls=Doubler))
    out = group.double(DataProto.from_dict(tensors={"x": torch.arange(4)}))
    expect([0, 2, 4, 6], out.batch["x"].tolist(), "dispatched and collected")
    ray.shutdown()
    return "a DataProto went out and came back doubled"
