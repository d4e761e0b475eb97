"""verl's own FSDP actor: a step of a small model, through the attention path that the row's settings lead to.

The worker class is the trainer's: `fsdp_workers` up to verl 0.7, `engine_workers` since 0.8. It is given the trainer's
own composed config, and the batch that the trainer would give it.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import tempfile
from pathlib import Path

from expecting import CheckError, expect_near
from kernel_nccl import free_port
from kernel_torch import devices
from tiny import small_model_folder

PROMPT, RESPONSE, ROWS = 6, 10, 4
LIMIT = 5e-2  # of log-probabilities, relative: the actor computes in bfloat16


def fsdp_actor(on, *settings):
    """Log-probabilities against transformers in float32 on the CPU, and a step that raises those that are rewarded."""
    import torch.multiprocessing as mp

    places, kinds = devices(on)
    world = min(len(places), 2)
    tokens = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    visible = tokens if len(tokens) >= world and all(tokens) else [str(number) for number in range(world)]
    with tempfile.TemporaryDirectory() as folder:
        model = small_model_folder(folder)
        batch = make_batch()
        reference = reference_of(model, batch)
        mp.spawn(run_rank, args=(world, on, visible, free_port(), folder, settings), nprocs=world, join=True)
        import torch

        found = torch.load(Path(folder) / "log_probs.pt")
        said = json.loads((Path(folder) / "said.json").read_text())
    error = expect_near(reference, found["before"], LIMIT, "log-probabilities")
    rise = float((found["after"] - found["before"]).mean())
    if not rise > 0:
        raise CheckError(f"a step with positive advantages moved the log-probabilities by {rise:.4f}")
    path = f"{said['worker']}, attention {said['attention']}, {said['wrapped']} over {world} of {kinds}"
    return f"{path}: log-probabilities off by {error:.1e}, {rise:+.3f} after a step"


def make_batch():
    """Return padded prompts and responses as a rollout leaves them: prompts padded on the left, responses right."""
    import torch

    generator = torch.Generator().manual_seed(4)
    ids = torch.randint(4, 100, (ROWS, PROMPT + RESPONSE), generator=generator)
    mask = torch.ones_like(ids)
    for row in range(ROWS):
        mask[row, :row] = 0
        mask[row, PROMPT + RESPONSE - row :] = 0
    ids = ids.masked_fill(mask == 0, 3)
    response_mask = mask[:, PROMPT:]
    return {
        "prompts": ids[:, :PROMPT],
        "responses": ids[:, PROMPT:],
        "input_ids": ids,
        "attention_mask": mask,
        "position_ids": (mask.cumsum(-1) - 1).clamp(min=0),
        "response_mask": response_mask,
        "advantages": response_mask.float(),
    }


def reference_of(model, batch):
    """Return the log-probabilities of the responses, in float64, zero where a response is padding."""
    import torch

    inputs = {name: batch[name] for name in ("input_ids", "attention_mask", "position_ids")}
    with torch.no_grad():
        logits = model(**inputs).logits.double()
    every = logits[:, :-1].log_softmax(-1).gather(-1, batch["input_ids"][:, 1:, None])[..., 0]
    return every[:, PROMPT - 1 :] * batch["response_mask"]


def run_rank(rank, world, on, visible, port, folder, settings):
    """Do one rank's part, with a GPU of its own, as a Ray worker has it; rank 0 writes down what was seen."""
    os.environ |= {
        "RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
    }  # fmt: skip
    if on == "cuda":
        os.environ["CUDA_VISIBLE_DEVICES"] = visible[rank]
    import torch

    batch = make_batch()
    actor = (LegacyActor if importlib.util.find_spec("verl.workers.fsdp_workers") else EngineActor)(
        compose(folder, world, settings), on
    )
    before = actor.log_probs(batch)
    actor.update(batch | {"old_log_probs": before}, world)
    after = actor.log_probs(batch)
    if rank == 0:
        keep = batch["response_mask"]
        torch.save({"before": before * keep, "after": after * keep}, Path(folder) / "log_probs.pt")
        (Path(folder) / "said.json").write_text(json.dumps(actor.describe()))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def compose(folder, world, settings):
    """Compose the trainer's config with the row's settings, for one step of the small model."""
    import verl
    from hydra import compose, initialize_config_dir
    from omegaconf import open_dict

    name = next((it for it in ("vllm", "sglang") if importlib.util.find_spec(it)), "hf")
    ours = (
        f"actor_rollout_ref.model.path={folder}",
        f"actor_rollout_ref.rollout.name={name}",
        f"actor_rollout_ref.actor.ppo_mini_batch_size={ROWS * world}",
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2",
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=2",
        "actor_rollout_ref.actor.optim.lr=0.001",
    )
    where = str(Path(verl.__file__).parent / "trainer" / "config")
    with initialize_config_dir(config_dir=where, version_base=None):
        config = compose(config_name="ppo_trainer", overrides=[*settings, *ours]).actor_rollout_ref
    with open_dict(config):  # main_ppo sets what is left to the number of steps
        config.actor.optim.total_training_steps = 10
    return config


class EngineActor:
    """The worker of verl 0.8 and later: tensordicts without padding."""

    def __init__(self, config, on):
        if on == "cpu":
            importlib.import_module("verl_on_cpu")  # the tests' own: verl has no such platform
        from verl.workers.engine_workers import ActorRolloutRefWorker

        self.worker = ActorRolloutRefWorker(config=config, role="actor")
        self.worker.init_model()

    def describe(self):
        """Say which class ran, with which attention."""
        engine = self.worker.actor.engine
        return {
            "worker": f"{type(self.worker).__module__}.{type(engine).__name__}",
            "attention": self.worker.actor.model_config.hf_config._attn_implementation,
            "wrapped": type(engine.module).__name__,
        }

    def _tensordict(self, batch, **other):
        from verl import DataProto
        from verl.utils import tensordict_utils as tu
        from verl.workers.utils.padding import left_right_2_no_padding

        data = DataProto.from_dict(
            tensors={name: tensor.clone() for name, tensor in batch.items()}, meta_info={"temperature": 1.0}
        )
        data.meta_info["global_token_num"] = batch["attention_mask"].sum(-1).tolist()
        tensordict = left_right_2_no_padding(data.to_tensordict())
        tu.assign_non_tensor(tensordict, **other)
        return tensordict

    def log_probs(self, batch):
        """Return the log-probabilities of the responses."""
        from verl.utils import tensordict_utils as tu
        from verl.workers.utils.padding import no_padding_2_padding

        data = self._tensordict(batch, calculate_entropy=False, compute_loss=False)
        found = tu.get(self.worker.compute_log_prob(data), "log_probs")
        return no_padding_2_padding(found, data).float().cpu()

    def update(self, batch, world):
        """Take one step."""
        data = self._tensordict(
            batch, calculate_entropy=False, compute_loss=True, global_batch_size=ROWS * world,
            mini_batch_size=ROWS * world, epochs=1, seed=0, dataloader_kwargs={"shuffle": False},
        )  # fmt: skip
        self.worker.update_actor(data)


class LegacyActor:
    """The worker of verl up to 0.7: padded batches in a DataProto."""

    def __init__(self, config, _on):
        from verl.workers.fsdp_workers import ActorRolloutRefWorker

        self.worker = ActorRolloutRefWorker(config=config, role="actor")
        self.worker.init_model()

    def describe(self):
        """Say which class ran, with which attention."""
        module = self.worker.actor_module_fsdp
        inner = getattr(module, "_fsdp_wrapped_module", module)
        return {
            "worker": f"{type(self.worker).__module__}.{type(self.worker).__name__}",
            "attention": inner.config._attn_implementation,
            "wrapped": type(module).__name__,
        }

    def _proto(self, batch):
        from verl import DataProto

        tensors = {name: tensor.clone() for name, tensor in batch.items()}
        tokens = batch["attention_mask"].sum(-1).tolist()
        meta = {"temperature": 1.0, "global_token_num": tokens, "multi_turn": False, "pad_token_id": 3}
        return DataProto.from_dict(tensors=tensors, meta_info=meta)

    def log_probs(self, batch):
        """Return the log-probabilities of the responses."""
        return self.worker.compute_log_prob(self._proto(batch)).batch["old_log_probs"].float().cpu()

    def update(self, batch, _world):
        """Take one step."""
        self.worker.update_actor(self._proto(batch))
