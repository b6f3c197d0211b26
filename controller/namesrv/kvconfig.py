"""The key-value table: namespace, key, value (codes 100-102, 219), and its file, which Java reads and writes as well.

Sans-IO: whoever changes the table writes ``encode`` to the file before answering.

Source: ``KVConfigManager`` and ``KVConfigSerializeWrapper`` of Apache RocketMQ 5.5.0.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import orjson

from remoting.errors import BodyError

ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"
"""Namespace of ordered topics; its values are ``broker:queues;…``."""
BYTES_MAX = 16 << 20
"""Largest size of all names, keys and values together."""
EMPTY_MAX = 256
"""Most namespaces that have lost their last key, and are remembered all the same."""
EMPTY_CHARS_MAX = 1 << 20
"""Largest size of the names of these."""


class KVTableFull(Exception):
    """An entry would exceed ``BYTES_MAX``."""


@attrs.define
class KVConfig:
    """Keys and values by namespace, with their size."""

    tables: dict[str, dict[str, str]] = attrs.field(factory=dict)
    _bytes: int = 0
    _empty: dict[str, None] = attrs.field(factory=dict)
    """Namespaces without a key, in the order in which they lost the last one."""

    @classmethod
    def decode(cls, content: bytes) -> KVConfig:
        """From the file's content. Raises ``BodyError`` saying what is wrong."""
        try:
            wrapper = orjson.loads(content)
        except orjson.JSONDecodeError as error:
            raise BodyError(f"not JSON: {error}") from None
        tables = wrapper.get("configTable", {}) if isinstance(wrapper, dict) else None
        if not isinstance(tables, dict):
            raise BodyError('not {"configTable": {namespace: {key: value}}}')
        made = cls()
        for namespace, entries in tables.items():
            if not isinstance(entries, dict) or not all(isinstance(value, str) for value in entries.values()):
                raise BodyError(f"namespace {namespace!r} is not {{key: text}}")
            made.tables[namespace] = {}
            if not entries:
                made._emptied(namespace)
            for key, value in entries.items():
                made.put(namespace, key, value)
        return made

    def encode(self) -> bytes:
        """The content of the file that ``decode`` reads."""
        return orjson.dumps({"configTable": self.tables}, option=orjson.OPT_SORT_KEYS)

    def put(self, namespace: str, key: str, value: str) -> None:
        """Raises ``KVTableFull`` and then changes nothing."""
        entries = self.tables.get(namespace)
        old = None if entries is None else entries.get(key)
        more = len(value) - len(old) if old is not None else len(namespace) + len(key) + len(value)
        if more > 0 and self._bytes + more > BYTES_MAX:
            raise KVTableFull(f"the key-value table holds {self._bytes} characters; {BYTES_MAX} are allowed")
        self._bytes += more
        self.tables.setdefault(namespace, {})[key] = value
        self._empty.pop(namespace, None)

    def get(self, namespace: str, key: str) -> str | None:
        return self.tables.get(namespace, {}).get(key)

    def delete(self, namespace: str, key: str) -> None:
        """Delete a key. Its namespace stays, as in Java: the list is empty then, not missing.

        An empty namespace goes when many others have become empty.
        """
        entries = self.tables.get(namespace, {})
        value = entries.pop(key, None)
        if value is not None:
            self._bytes -= len(namespace) + len(key) + len(value)
            if not entries:
                self._emptied(namespace)

    def _emptied(self, namespace: str) -> None:
        self._empty[namespace] = None
        while len(self._empty) > EMPTY_MAX or sum(map(len, self._empty)) > EMPTY_CHARS_MAX:
            oldest = next(iter(self._empty))
            del self._empty[oldest], self.tables[oldest]

    def namespace(self, namespace: str) -> Mapping[str, str] | None:
        """None for a namespace that was never written to, or is forgotten."""
        return self.tables.get(namespace)
