"""The size of a file whose index states none. An edge: it asks the server."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from verl_env.errors import ResolveError
from verl_env.fetch import content_length

if TYPE_CHECKING:
    from verl_env.capture.on_index import Held
    from verl_env.indexes import Indexes
    from verl_env.matrix.pins import Pin


def sized(held: Held, indexes: Indexes) -> Pin:
    """Return the pin with its size; raises ResolveError where neither index nor server states one."""
    if held.pin.size:
        return held.pin
    logins = (indexes.default or "", *indexes.extra, *indexes.by_source.values())
    size = content_length(held.url, logins=logins)
    if size is None:
        raise ResolveError(
            f"`{held.pin.file}`: neither its index nor its server states a size", hint="use an index that states sizes"
        )
    return replace(held.pin, size=size)
