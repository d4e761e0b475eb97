"""A package as a list of packages names it, whatever the list was; and what is wrong between packages. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from verl_env.matrix.pins import Pin


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """One package of a set; None where the list does not say.

    `name` is normalised (PEP 503); `version` a PEP 440 version as written, local label included. `files` are its
    artifacts' names. `hashed` is whether each of them has a hash; None when the list names no artifacts. `source`
    is a symbol of mirrors.toml, `index` a URL without credentials. `requires` are its Requires-Dist lines;
    `contents` maps each installed path to a hash of what it holds (RECORD).
    """

    name: str
    version: str | None = None
    files: tuple[str, ...] = ()
    hashed: bool | None = None
    source: str | None = None
    index: str | None = None
    requires: tuple[str, ...] | None = None
    contents: Mapping[str, str] | None = None

    @property
    def label(self) -> str:
        """The package as people write it: `torch 2.11.0`."""
        return f"{self.name} {self.version}" if self.version else self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoherence:
    """One thing that does not hold together. `rule` is its stable id; `remedy` is what to write."""

    rule: str
    what: str
    packages: tuple[str, ...]
    why: str
    remedy: str
    evidence: tuple[str, ...] = ()


def package_of(pin: Pin) -> Package:
    """Return a pin as a package, so that the same rules judge both."""
    return Package(name=pin.name, version=pin.version, files=(pin.file,), hashed=bool(pin.sha256), source=pin.source)
