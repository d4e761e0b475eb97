"""`python run_check.py MODULE:CHECK DEVICE [WORD…]`: one check a process, run by an environment's own Python.

Exit 0 and a last line that says what was shown, 77 and a last line that says why there was nothing to show, or a
traceback. DEVICE is `none` (no GPU is used, or seen), `cuda`, or `cpu`, where a kernel check tests its own logic.
Nothing is downloaded, and nothing is left behind: caches of compiled code go to the folder that VERL_ENV_PROOF_CACHES
names, which is this proof's, or to one of the check's own. So what is compiled at run time is compiled here and now.
"""

from __future__ import annotations

import importlib
import os
import shutil
import sys
import tempfile

SKIPPED = 77
QUIET = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "RAY_USAGE_STATS_ENABLED": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "WANDB_MODE": "disabled",
}
# NVLink multicast needs a fabric manager that has it, and some hosts share one: off unless somebody turned it on.
MULTICAST = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1"}
CACHES = {
    "FLASHINFER_WORKSPACE_BASE": "flashinfer",
    "TRITON_CACHE_DIR": "triton",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TORCH_EXTENSIONS_DIR": "extensions",
    "VLLM_CACHE_ROOT": "vllm",
    "SGLANG_CACHE_DIR": "sglang",
}


def prepare(device: str, caches: str) -> None:
    """Set what must be set before the first library is loaded."""
    os.environ.update(QUIET)
    for name, value in MULTICAST.items():
        os.environ.setdefault(name, value)
    if device != "cuda":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    if device != "none":
        os.environ.update({name: os.path.join(caches, part) for name, part in CACHES.items()})


def main() -> None:
    """Run the named check, say what it showed, and leave without waiting for libraries' threads."""
    check, device, *words = sys.argv[1:]
    module, _, name = check.partition(":")
    folder = tempfile.mkdtemp(prefix="verl-env-check-")
    prepare(device, os.environ.get("VERL_ENV_PROOF_CACHES") or folder)
    from expecting import Skip

    function = getattr(importlib.import_module(module), name)
    try:
        said = function(*words) if device == "none" else function(device, *words)
        code = 0
    except Skip as skip:
        said, code = skip, SKIPPED
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(said, flush=True)
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
