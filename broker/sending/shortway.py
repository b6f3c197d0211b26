"""The short way of a send, past all rules. It knows the text of the properties, and nothing else of the message."""

from __future__ import annotations

from collections.abc import Mapping

from broker.properties import UNIQ_KEY, parse, waits, write


class ShortWay:
    """The short way: properties are stored as they came, with the broker's own after them."""

    def __init__(self, looked_at: frozenset[str], own: Mapping[str, str]) -> None:
        """``looked_at``: a message with one of these properties has to take the long way."""
        self._looked_at, self._own = looked_at, write(own).decode()

    def taken(self, text: str) -> tuple[bytes, str, bool] | None:
        """Return the bytes for the record, the unique id, and whether the sender waits; None: not this way."""
        values = parse(text)
        if values is None or UNIQ_KEY not in values or not self._looked_at.isdisjoint(values):
            return None
        raw = (text + self._own if text[-1] == "\x02" else f"{text}\x02{self._own}").encode()
        return raw, values[UNIQ_KEY], "WAIT" not in values or waits(values)
