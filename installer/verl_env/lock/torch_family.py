"""Which torchvision and torchaudio belong to which torch. Pure data, with one look-up.

Read from the Requires-Dist of the wheels on the Python package index, by resolving each release with uv
(2026-11-30): torchvision pins `torch==` exactly up to 0.28, and `torch>=2.14.0` in 0.29.2; torchaudio pins
`torch==` its own version up to 2.10, nothing in 2.11.0, `torch>=2.11` in 2.11.1. Engines pin torchaudio 2.11.0
beside torch 2.13 and 2.14, so from 2.11 on it goes with any torch that is not older.
"""

from __future__ import annotations

from packaging.specifiers import SpecifierSet

# torchvision release -> the torch it was built for; a minor stands for its releases that are not listed.
_TORCHVISION = {
    "0.15": "==2.0.*", "0.16": "==2.1.*", "0.17": "==2.2.*", "0.18": "==2.3.*", "0.19": "==2.4.*",
    "0.20": "==2.5.*", "0.21": "==2.6.*", "0.22": "==2.7.*", "0.23": "==2.8.*", "0.24": "==2.9.*",
    "0.25": "==2.10.*", "0.26": "==2.11.*", "0.27": "==2.12.*", "0.28": "==2.13.*", "0.29": ">=2.14",
}  # fmt: skip
# The patch of both counts too (0.20.1 pins torch==2.5.1), but for the first and the last line above.
_SAME_PATCH = frozenset(_TORCHVISION) - {"0.15", "0.29"}


def torch_for(name: str, release: tuple[int, ...]) -> SpecifierSet | None:
    """Return the torch releases that a torchvision or torchaudio was built for; None when not known.

    `release` is the release part of its version, as `(0, 26, 0)`.
    """
    minor = f"{release[0]}.{release[1] if len(release) > 1 else 0}"
    patch = release[2] if len(release) > 2 else 0  # noqa: PLR2004 - the third part
    if name == "torchvision":
        known = _TORCHVISION.get(minor)
        if known is None or minor not in _SAME_PATCH:
            return SpecifierSet(known) if known else None
        return SpecifierSet(known.replace(".*", f".{patch}"))
    if name == "torchaudio":
        if release[:2] >= (2, 11):
            return SpecifierSet(">=2.11")
        return SpecifierSet(f"=={minor}.{patch}")
    return None


def torchvision_for(torch_minor: str) -> str | None:
    """Return the torchvision minor for a torch minor: `"0.26"` for `"2.11"`."""
    return next((name for name, spec in _TORCHVISION.items() if spec.strip("=>.*") == torch_minor), None)
