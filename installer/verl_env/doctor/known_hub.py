"""Findings about Hugging Face: the cache, the hub, one model."""

from __future__ import annotations

from verl_env.doctor.kind import Known

HUGGINGFACE: dict[str, Known] = {
    "hf-home-not-writable": Known(
        area="huggingface",
        title="the Hugging Face cache cannot be written",
        why="a model that is not there yet cannot be fetched, and locks cannot be taken",
    ),
    "hf-full": Known(
        area="huggingface", title="the Hugging Face cache has little room", why="a download of a model stops half-way"
    ),
    "hf-two-caches": Known(
        area="huggingface",
        title="Hugging Face caches lie in two places",
        why="models are fetched twice, and what one program has another does not find",
    ),
    "hf-legacy-variable": Known(
        area="huggingface",
        title="a variable is set that current releases do not read",
        why="the cache is elsewhere than the variable says",
    ),
    "hf-offline": Known(
        area="huggingface", title="downloads are switched off", why="only what is in the cache is found"
    ),
    "hf-no-token": Known(
        area="huggingface", title="the model wants a token, and none is here", why="its files cannot be fetched"
    ),
    "hf-unreachable": Known(
        area="huggingface", title="the model hub does not answer", why="what is not in the cache cannot be fetched"
    ),
    "hf-model-missing": Known(
        area="huggingface", title="the model is not here", why="the run would begin with a download, or stop"
    ),
    "hf-model-incomplete": Known(
        area="huggingface", title="files of the model are missing or cut off", why="loading stops in the middle"
    ),
    "hf-model-code": Known(
        area="huggingface",
        title="the model brings code of its own",
        why="it loads only with trust_remote_code, which runs that code",
    ),
}
