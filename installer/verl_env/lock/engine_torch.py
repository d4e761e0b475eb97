"""Which torch each published vLLM and SGLang pins. Pure data, with one look-up.

Read from Requires-Dist of the wheels on the Python package index (2026-11-30): vLLM's own, SGLang's of its `srt`
extra up to 0.5.2 and its own since. An entry is the first release with that pin; it holds until the next one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from packaging.version import Version

_VLLM = (
    ((0, 4, 1), "2.2.1"), ((0, 4, 2), "2.3.0"), ((0, 5, 2), "2.3.1"), ((0, 5, 4), "2.4.0"), ((0, 6, 4), "2.5.1"),
    ((0, 8, 0), "2.6.0"), ((0, 9, 0), "2.7.0"), ((0, 10, 0), "2.7.1"), ((0, 10, 2), "2.8.0"), ((0, 11, 1), "2.9.0"),
    ((0, 14, 0), "2.9.1"), ((0, 17, 0), "2.10.0"), ((0, 20, 0), "2.11.0"), ((0, 27, 0), "2.13.0"),
    ((0, 33, 0), "2.14.0"),
)  # fmt: skip
_SGLANG = (
    ((0, 4, 4), "2.5.1"), ((0, 4, 6), "2.6.0"), ((0, 4, 7), "2.7.1"), ((0, 5, 1), "2.8.0"), ((0, 5, 6), "2.9.1"),
    ((0, 5, 12), "2.11.0"), ((0, 5, 18), "2.13.0"), ((0, 5, 22), "2.14.1"),
)  # fmt: skip
_PINS = {"vllm": _VLLM, "sglang": _SGLANG}
# The last release that was read: what comes after it pins what nobody has looked at here.
_LAST = {"vllm": (0, 33, 999), "sglang": (0, 5, 23)}


def torch_of(engine: str, version: Version) -> str | None:
    """Return the torch that a published engine pins; None for others' builds, and where it is not known."""
    parts = version.release
    dated = len(parts) > 3 and parts[3] > 1000  # noqa: PLR2004 - 0.5.5.20250604, a vendor's build
    published = version.dev is None and not dated and (version.local or "cu").startswith("cu")
    if engine not in _PINS or not published or parts[:3] > _LAST[engine]:
        return None
    pins = [torch for first, torch in _PINS[engine] if first <= parts[:3]]
    return pins[-1] if pins else None
