"""How a build fails."""

from __future__ import annotations

from verl_env.errors import InstallError


class BuildError(InstallError):
    """A wheel that could not be compiled, or that is not what was asked for; nothing of it is used."""

    code = "build"
