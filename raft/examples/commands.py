"""A codec for commands that are small attrs classes: CBOR of the class's name and its fields, in order.

A class may be given more fields later, at its end and with defaults: older bytes are still read. Knows attrs and CBOR,
and nothing of what the commands mean.
"""

from __future__ import annotations

from typing import TypeVar

import attrs
import cbor2

from raft.statemachine import Codec

T = TypeVar("T", bound=attrs.AttrsInstance)


def cbor_codec(*kinds: type[T]) -> Codec[T]:
    """Make a codec for these classes only. Fields are numbers, text, bytes, ``None``; their validators are called.

    ``decode`` raises ``ValueError`` for bytes of other commands, and what a validator raises.
    """
    by_name = {kind.__name__: kind for kind in kinds}

    def encode(command: T) -> bytes:
        kind = type(command)
        if by_name.get(kind.__name__) is not kind:
            raise TypeError(f"{kind.__name__} is no command here; these are: {', '.join(by_name)}")
        return cbor2.dumps([kind.__name__, *(getattr(command, field.name) for field in attrs.fields(kind))])

    def decode(data: bytes) -> T:
        found = cbor2.loads(data)
        if not isinstance(found, list) or not found or not isinstance(found[0], str) or found[0] not in by_name:
            raise ValueError(f"a command is the name of one and its fields, not {found!r:.100}")
        return by_name[found[0]](*found[1:])

    return Codec(encode, decode)
