"""Messages that one sender sent together, for one queue: what they have in common, and the rest of each.

To whoever wants messages it is a sequence of them; the store makes their records in one pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

import attrs

from remoting.record import Message, Part, size_of


class Batch(Sequence[Message]):
    """Messages of one sender, for one queue: ``common`` is what all have in common, ``parts`` the rest of each."""

    def __init__(self, common: Message, parts: Sequence[Part]) -> None:
        self.common, self.parts = attrs.evolve(common, body=b"", properties=b"", flag=0), parts

    def __len__(self) -> int:
        return len(self.parts)

    @overload
    def __getitem__(self, at: int) -> Message: ...

    @overload
    def __getitem__(self, at: slice) -> Batch: ...

    def __getitem__(self, at: int | slice) -> Message | Batch:
        if isinstance(at, slice):
            return Batch(self.common, self.parts[at])
        flag, body, properties = self.parts[at]
        return attrs.evolve(self.common, body=body, properties=properties, flag=flag)

    def sizes(self) -> list[int]:
        """Return the size of each record in bytes. Raises ``MessageIllegal`` as ``size_of`` does."""
        longest = max((body for _, body, _ in self.parts), key=len, default=b"")
        most = max((properties for _, _, properties in self.parts), key=len, default=b"")
        size_of(attrs.evolve(self.common, body=longest, properties=most))
        fixed = size_of(self.common)
        return [fixed + len(body) + len(properties) for _, body, properties in self.parts]
