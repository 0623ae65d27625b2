"""Frozen dataclasses to JSON objects and back, keeping every field that we do not know.

Session files are written by several programs, so what we do not understand must survive a round trip. Each record
therefore carries `extra`: the unknown keys, and known keys whose value was an explicit null. Validation libraries
were tried first: they refuse strings with unpaired surrogates, which real tool output contains.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, ClassVar, Self, TypeVar

Json = Any
"""What `json.loads` returns."""


class DecodeError(ValueError):
    """A JSON value does not have the shape of the record it should be."""


def camel(name: str) -> str:
    """The JSON key of a Python field: `first_kept_entry_id` becomes `firstKeptEntryId`."""
    return re.sub(r"_([a-z])", lambda match: match[1].upper(), name)


@dataclass(frozen=True)
class _Slot:
    name: str
    key: str
    required: bool
    kinds: tuple[type, ...]
    decode: Callable[[Json], Any] | None
    encode: Callable[[Any], Json] | None


def converted(decode: Callable[[Json], Any], encode: Callable[[Any], Json], *, default: Any = MISSING) -> Any:
    """A dataclass field whose JSON form is made by `encode` and read by `decode`."""
    metadata = {"decode": decode, "encode": encode}
    return field(metadata=metadata) if default is MISSING else field(default=default, metadata=metadata)


_KINDS: Mapping[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
}


def _slot(f: Field[Any]) -> _Slot:
    annotation = str(f.type).replace(" | None", "")
    return _Slot(
        name=f.name,
        key=f.metadata.get("key") or camel(f.name),
        required=f.default is MISSING and f.default_factory is MISSING,
        kinds=_KINDS.get(annotation, ()),
        decode=f.metadata.get("decode"),
        encode=f.metadata.get("encode"),
    )


def _is_a(value: Json, kinds: tuple[type, ...]) -> bool:
    return isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))


_SLOTS: dict[type, tuple[_Slot, ...]] = {}


def _slots(cls: type[Record]) -> tuple[_Slot, ...]:
    found = _SLOTS.get(cls)
    if found is None:
        found = _SLOTS[cls] = tuple(_slot(f) for f in fields(cls) if f.name != "extra")
    return found


@dataclass(frozen=True, kw_only=True)
class Record:
    """A value that is one JSON object. Subclasses are frozen dataclasses with keyword fields."""

    extra: Mapping[str, Json] = field(default_factory=dict)

    always_written: ClassVar[frozenset[str]] = frozenset()
    """Keys that are there even when their value is null."""

    @classmethod
    def from_json(cls, data: Json) -> Self:
        """Read one JSON object.

        Raises:
            DecodeError: `data` is not an object, a required key is missing, or a value has the wrong type.
        """
        if not isinstance(data, dict):
            raise DecodeError(f"{cls.__name__} should be an object, not {type(data).__name__}")
        values: dict[str, Any] = {}
        extra = dict(data)
        for slot in _slots(cls):
            if slot.key not in data or (data[slot.key] is None and not slot.required):
                if slot.required:
                    raise DecodeError(f"{cls.__name__} has no {slot.key!r}")
                if slot.key in cls.always_written:
                    extra.pop(slot.key, None)
                continue
            value = extra.pop(slot.key)
            if slot.kinds and not isinstance(value, slot.kinds):
                raise DecodeError(
                    f"{cls.__name__}.{slot.key} should be {slot.kinds[0].__name__}, not {type(value).__name__}"
                )
            values[slot.name] = slot.decode(value) if slot.decode else value
        return cls(**values, extra=extra)

    @classmethod
    def readable(cls, data: Mapping[str, Json]) -> Self:
        """Read what can be read of an object whose fields are all optional; a value of the wrong type is not there."""
        wrong = {
            slot.key
            for slot in _slots(cls)
            if slot.kinds and slot.key in data and not (_is_a(data[slot.key], slot.kinds) or data[slot.key] is None)
        }
        return cls.from_json({key: value for key, value in data.items() if key not in wrong})

    def to_json(self) -> dict[str, Json]:
        """The JSON object; fields that are None are left out unless they came as an explicit null."""
        data: dict[str, Json] = {}
        for slot in _slots(type(self)):
            value = getattr(self, slot.name)
            if value is None:
                if slot.key in self.always_written:
                    data[slot.key] = None
                continue
            data[slot.key] = slot.encode(value) if slot.encode else value
        for key, value in self.extra.items():
            data.setdefault(key, value)
        return data


R = TypeVar("R", bound=Record)


def decode_tagged(data: Json, tag: str, kinds: Mapping[str, type[R]], unknown: type[R], what: str) -> R:
    """Read one of several records, told by the text under `tag`; another text gives an `unknown`.

    Raises:
        DecodeError: it is not an object, has no tag, or lacks what its kind demands.
    """
    if not isinstance(data, dict) or not isinstance(data.get(tag), str):
        raise DecodeError(f"{what} should be an object with a {tag}")
    return kinds.get(data[tag], unknown).from_json(data)
