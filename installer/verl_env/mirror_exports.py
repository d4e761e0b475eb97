"""The variables that mirrors ask for, for one lock. Pure but for what the user has set already."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from verl_env import output
from verl_env.environment.exports import SET, Export

if TYPE_CHECKING:
    from verl_env.indexes import Indexes
    from verl_env.lock.lockfile import Lock


def asked_for(indexes: Indexes, lock: Lock) -> tuple[Export, ...]:
    """Return the exports for this lock; what the user has set stays, and what lacks its package is said."""
    names = {pin.name for pin in lock.pins}
    found = []
    for it in indexes.exports:
        if os.environ.get(it.name):
            output.note(f"{it.name} is set already and stays as it is ({it.why} asks for another)")
        elif it.needs and it.needs not in names:
            output.warn(
                f"{it.name} is not exported: it needs {it.needs}, which the lock lacks (lock --with {it.needs})"
            )
        else:
            found.append(Export(name=it.name, value=it.value, how=SET, why=it.why))
    return tuple(found)
