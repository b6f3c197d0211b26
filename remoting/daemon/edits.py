"""A change of a configuration, written into the file that it came from: its other lines stay, comments too.

Pure text.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from remoting import properties

NO_NAMES: Mapping[str, str] = {}


@attrs.frozen
class Edit:
    """``before`` and ``after`` are all keys; ``given`` are those that somebody asked for, as written."""

    given: Mapping[str, str]
    before: Mapping[str, str]
    after: Mapping[str, str]
    other_names: Mapping[str, str] = NO_NAMES
    """Other names that a key may have."""

    def of(self, content: bytes | None) -> bytes:
        """Return the file's new content, with all keys where there is no file yet.

        Raises ``OSError`` for a file that is no configuration any more.
        """
        if content is None:
            return properties.encode(self.after).encode()
        try:
            text = content.decode()
            there = properties.parse(text)
        except ValueError as error:
            raise OSError(f"it is no configuration any more: {error}") from None
        return properties.edited(text, self._changes(there)).encode()

    def _changes(self, there: Mapping[str, str]) -> dict[str, str]:
        """Return the keys asked for, and keys that follow from them where the file says otherwise."""
        followed = {name: text for name, text in self.after.items() if self.before.get(name) != text and name in there}
        asked = {name: self.after.get(name, text.strip()) for name, text in self.given.items()}
        changes = {**followed, **asked}
        for name, other in self.other_names.items():
            if other in there and {name, other} & asked.keys():
                for each in {name, other} & there.keys():
                    changes[each] = self.after[name]
        return {name: text for name, text in changes.items() if there.get(name) != text}
