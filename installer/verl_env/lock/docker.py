"""A lock as a Dockerfile. Pure.

Self-contained: the hashed requirements are in it, so that it builds from any context, also from stdin. Layers go from
what is largest and changes least to what is smallest and changes most. No index is named but those that a source of
the matrix stands for, and each of them is a build argument.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from verl_env.lock.build import hashed_requirements
from verl_env.lock.export import in_order

if TYPE_CHECKING:
    from collections.abc import Iterator

    from verl_env.lock.lockfile import Lock
    from verl_env.matrix.facts import Facts
    from verl_env.matrix.pins import Pin

# The uv that installs, as the wheel its authors publish; the same as install.sh's (a test compares them).
UV_VERSION = "0.13.9"
UV_SHA256 = {
    "x86_64": "d7f459fe4fd247d830351c75686d3996ace3c6f3f728eb0e85a30b7ada0cef19",
    "aarch64": "5435c5ce14a56431208ca0996416d310f1598e8c2c8ba707688985a16bb82dbe",
}
PLATFORMS = {"x86_64": "linux/amd64", "aarch64": "linux/arm64"}
_ENVIRONMENT = "/opt/verl-env"
_LISTS = "/opt/verl-env-lock"
_CACHE = "/var/cache/uv"
# Layers, first to last; a package goes into the first whose pattern its name matches. The last takes the rest.
_LAYERS = (
    ("cuda", re.compile(r"nvidia-.*|cuda-.*|cupy.*|triton|torch")),
    ("engine", re.compile(r"vllm|sglang.*|sgl-kernel|flashinfer-.*|flash-attn.*|torch.*|xformers|transformers|ray")),
)


def render_dockerfile(lock: Lock, facts: Facts) -> str:
    """Return a Dockerfile (BuildKit's syntax 1) whose image has the lock's environment in front of its PATH."""
    return "\n".join([*_head(lock), *_tools(lock), *_arguments(lock, facts), *_layers(lock), *_tail(lock)]) + "\n"


def _head(lock: Lock) -> Iterator[str]:
    table = lock.table
    yield "# syntax=docker/dockerfile:1"
    yield f"# {table.title} (row {table.row}); written by verl-env from the lock {table.digest}"
    if table.driver:
        yield f"# Needs NVIDIA driver >= {table.driver} on the host, and the NVIDIA container toolkit (--gpus all)."
    yield "# hadolint ignore=DL3029"
    yield f"FROM --platform={PLATFORMS.get(table.arch, f'linux/{table.arch}')} python:{table.python}-slim"
    yield f'LABEL verl-env.row="{table.row}" verl-env.digest="{table.digest}"'
    yield 'SHELL ["/bin/sh", "-eu", "-c"]'


def _tools(lock: Lock) -> Iterator[str]:
    """Write what the environment stands on: a compiler where code is compiled at run time, and uv by hash."""
    if lock.table.cuda:
        yield ""
        yield "# Triton and flashinfer compile while they run; libnuma is what engines bind memory with."
        yield "# hadolint ignore=DL3008"
        yield "RUN apt-get update \\"
        yield "    && apt-get install --yes --no-install-recommends gcc g++ libc6-dev libnuma1 \\"
        yield "    && rm -rf /var/lib/apt/lists/*"
    yield ""
    yield "# pip takes PIP_INDEX_URL and uv UV_DEFAULT_INDEX from --build-arg, where a mirror is to be used."
    yield "ARG PIP_INDEX_URL"
    yield "ARG UV_DEFAULT_INDEX"
    digest = UV_SHA256.get(lock.table.arch)
    yield f"COPY <<'EOF' {_LISTS}/uv.txt"
    yield f"uv=={UV_VERSION} --hash=sha256:{digest}" if digest else f"uv=={UV_VERSION}"
    yield "EOF"
    yield ""
    hashes = "--require-hashes " if digest else ""
    yield f"RUN pip install --no-cache-dir --no-deps {hashes}--requirement {_LISTS}/uv.txt \\"
    yield f"    && UV_PYTHON_DOWNLOADS=never uv venv --python python{lock.table.python} {_ENVIRONMENT}"
    yield f'ENV VIRTUAL_ENV="{_ENVIRONMENT}" PATH="{_ENVIRONMENT}/bin:$PATH" PYTHONNOUSERSITE="1"'
    yield f'ENV UV_CACHE_DIR="{_CACHE}" UV_LINK_MODE="copy" UV_NO_CONFIG="1" PYC_INVALIDATION_MODE="CHECKED_HASH"'


def _arguments(lock: Lock, facts: Facts) -> Iterator[str]:
    """Write one build argument for each source of the pins: the matrix's place for it, to be overridden by a mirror."""
    sources = sorted(set(lock.table.sources.values()))
    if sources:
        yield ""
        yield "# Where files that are not on the default index come from; a hash says what they are."
    for source in sources:
        known = facts.source(source)
        name = next(name for name, symbol in lock.table.sources.items() if symbol == source)
        version = next((pin.version.split("+")[0] for pin in lock.pins if pin.name == name), "")
        url = (known.url or "").replace("{version}", version) if known else ""
        yield f'ARG {_argument(source)}="{url}"'


def _argument(source: str) -> str:
    return f"INDEX_{source.upper().replace('-', '_')}"


def _layers(lock: Lock) -> Iterator[str]:
    """Write each layer's list and its installation: by hash, with nothing resolved."""
    build = ""
    if lock.table.build:
        yield ""
        yield f"COPY <<'EOF' {_LISTS}/build.txt"
        yield hashed_requirements(lock.table.build).rstrip()
        yield "EOF"
        build = f" --build-constraints {_LISTS}/build.txt --require-build-hashes"
        build += " \\\n    --preview-features build-dependency-hashes"
    for number, (name, pins) in enumerate(_grouped(lock), 1):
        yield ""
        yield f"COPY <<'EOF' {_LISTS}/{number}-{name}.txt"
        yield hashed_requirements(pins).rstrip()
        yield "EOF"
        yield ""  # linters take an instruction right after a here-document for its text
        yield f"RUN --mount=type=cache,target={_CACHE} uv pip install --no-deps --require-hashes --compile-bytecode \\"
        options = build if any(pin.is_sdist for pin in pins) else ""
        yield f"    --requirement {_LISTS}/{number}-{name}.txt{_index_options(pins)}{options}"


def _index_options(pins: tuple[Pin, ...]) -> str:
    """Name the build arguments of the sources that these pins come from."""
    sources = sorted({pin.source for pin in pins if pin.source != "default"})
    words = "".join(f' --index "${_argument(source)}"' for source in sources)
    return f"{words} --index-strategy unsafe-best-match" if words else ""


def _grouped(lock: Lock) -> Iterator[tuple[str, tuple[Pin, ...]]]:
    """Yield the layers that have packages, in order; the row's own set before what was added or moved, verl last."""
    table = lock.table
    last = {"verl", *table.added, *table.moved}
    groups: dict[str, list[Pin]] = {**{name: [] for name, _ in _LAYERS}, "rest": [], "verl": []}
    for pin in in_order(lock):
        if pin.name in last:
            groups["verl"].append(pin)
        else:
            name = next((name for name, pattern in _LAYERS if pattern.fullmatch(pin.name)), "rest")
            groups[name].append(pin)
    yield from ((name, tuple(pins)) for name, pins in groups.items() if pins)


def _tail(lock: Lock) -> Iterator[str]:
    """Write the row's exports, and the checkout when there is one."""
    exports = lock.table.exports
    if exports:
        yield ""
        yield from (f"ENV {name}={_quoted(value)}" for name, value in exports.items())
    editable = lock.table.editable
    if editable:
        yield ""
        yield f"# The checkout over the pins: build with `--build-context checkout={editable.path}`."
        yield f"COPY --from=checkout . /opt/{editable.name}"
        yield f"RUN uv pip install --no-deps --editable /opt/{editable.name}"


def _quoted(value: str) -> str:
    """Quote for ENV: a backslash, a quote and a dollar sign mean themselves."""
    return '"' + re.sub(r'(["\\$])', r"\\\1", value).replace("\n", "\\\n") + '"'
