"""Frozen dataclasses from and to the plain values of TOML and JSON, strictly and with key paths.

A TOML float where a string belongs is an error, not a conversion: `python = [3.10]` would otherwise become
Python "3.1". Every fault of a document is reported at once.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_origin

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cattrs import Converter

T = TypeVar("T")


class RecordError(ValueError):
    """A document that does not have the shape of its record; `faults` are `key.path: what` lines."""

    def __init__(self, faults: tuple[str, ...]) -> None:
        """Keep every fault, in document order."""
        super().__init__("; ".join(faults))
        self.faults = faults


_converters: dict[bool, Converter] = {}


def _converter(*, strict: bool) -> Converter:
    """Build the converter once; `strict` refuses keys that the record does not know."""
    if strict not in _converters:
        from cattrs import Converter

        converter = Converter(forbid_extra_keys=strict, prefer_attrib_converters=False)
        for kind in (str, bool, float, dt.date):
            converter.register_structure_hook(kind, _exactly(kind))
        converter.register_structure_hook(int, _exactly(int))
        converter.register_structure_hook_factory(_is_tuple, lambda kind: _listed(kind, converter))
        converter.register_unstructure_hook(dt.date, lambda value: value.isoformat())
        _converters[strict] = converter
    return _converters[strict]


def _exactly(kind: type) -> Any:
    """Return a hook that takes only values of `kind`; bool is an int in Python, and not in TOML."""

    def hook(value: object, _: object) -> object:
        if kind is float and type(value) is int:
            return float(value)
        if kind is dt.date and isinstance(value, str):
            return dt.date.fromisoformat(value)
        if type(value) is not kind:
            raise ValueError(f"expected {kind.__name__}, found {type(value).__name__} `{value}`")
        return value

    return hook


def _is_tuple(kind: Any) -> bool:
    origin: Any = get_origin(kind)
    return origin is tuple


def _listed(kind: Any, converter: Converter) -> Any:
    """Return a hook that takes only lists; text is iterable in Python, and no list in TOML."""
    inside: Any = list[get_args(kind)[0]]  # type: ignore[misc]
    structure = converter.get_structure_hook(inside)

    def hook(value: object, _: object) -> tuple[object, ...]:
        if not isinstance(value, (list, tuple)):
            raise ValueError(f"expected list, found {type(value).__name__} `{value}`")  # noqa: TRY004 - as `_exactly`
        return tuple(structure(value, inside))

    return hook


def from_plain(kind: type[T], plain: Mapping[str, Any], *, strict: bool = True) -> T:
    """Build a record of `kind`; raise RecordError with every fault when `plain` does not fit."""
    converter = _converter(strict=strict)
    try:
        return converter.structure(plain, kind)
    except Exception as err:
        from cattrs import BaseValidationError, transform_error

        if isinstance(err, BaseValidationError):
            raise RecordError(
                tuple(_readable(fault) for fault in transform_error(err, format_exception=_what))
            ) from err
        raise RecordError((f"$: {err}",)) from err


def _what(err: BaseException, _: type | None) -> str:
    """Say what is wrong with one value, in words of TOML rather than of cattrs."""
    from cattrs import ForbiddenExtraKeysError

    if isinstance(err, ForbiddenExtraKeysError):
        return "unknown key " + ", ".join(f"`{name}`" for name in sorted(err.extra_fields))
    if isinstance(err, KeyError):
        return "required, and missing"
    if isinstance(err, AttributeError):  # cattrs asked a value for its keys
        return "expected a table"
    return str(err)


def _readable(fault: str) -> str:
    """Turn cattrs' `what @ $.a.b` into `a.b: what`."""
    what, _, where = fault.rpartition(" @ ")
    where = where.removeprefix("$").removeprefix(".")
    return f"{where}: {what}" if where else what


def to_plain(record: object) -> Any:
    """Return the record as dicts, lists and scalars, ready for JSON; dates become ISO strings."""
    return _converter(strict=True).unstructure(record)
