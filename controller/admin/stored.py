"""A message that a broker has, and what its sender meant. It knows records and asks nobody."""

from __future__ import annotations

from typing import Final

import attrs

from controller.admin.command import AdminError
from remoting.address import join_address
from remoting.compression import expand
from remoting.record import Record, decode_properties, unpacked_host

BODY_BYTES_MAX: Final = 64 << 20
"""Largest size of a compressed body after it was expanded."""


@attrs.frozen
class Stored:
    """A message that was found."""

    record: Record
    properties: dict[str, str]
    body: bytes
    """The body as it was sent."""

    @property
    def message_id(self) -> str:
        """The sender's; the broker's where the sender gave none."""
        return self.properties.get("UNIQ_KEY") or self.record.message_id

    @property
    def topic(self) -> str:
        return self.record.message.topic.decode(errors="replace")

    def text(self, encoding: str) -> str:
        """The body; what is none in this encoding is replaced. Raises ``AdminError``."""
        try:
            return self.body.decode(encoding, errors="replace")
        except LookupError:
            raise AdminError(f"{encoding!r} is no encoding; UTF-8 is one") from None

    @property
    def store_host(self) -> str:
        return join_address(*unpacked_host(self.record.message.store_host))


def stored_of(record: Record) -> Stored:
    """Return the message with its body as it was sent. Raises ``CompressionMissing``, ``MessageIllegal``."""
    message = record.message
    return Stored(record, decode_properties(message.properties),
                  expand(message.body, message.sys_flag, BODY_BYTES_MAX))
