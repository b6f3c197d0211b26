"""The table of consumer offsets: the next message of each group in each queue of a topic.

A reset takes effect at the group's next pull; what clients commit until then does not undo it. Replicas hear of it in
the log, and keep it until a copy of the master's table says that the group has gone on. It does no I/O: ``on_change``
says that it must be written to disk. Source: ``ConsumerOffsetManager`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

import attrs

from broker.store.tables import ConsumerOffsets
from remoting.bodies.namesrv import DataVersion

COPIES_OLDER: Final = 2
"""Copies of the master's table that may be older than what its log says: one that is on its way, and what it delays."""
_NONE: Final[Mapping[int, int]] = {}


@attrs.frozen
class OffsetsConfig:
    """Keys of ``BrokerConfig`` and their defaults."""

    flush_consumer_offset_interval: int = 5_000
    use_server_side_reset_offset: bool = True
    consumer_offset_update_version_step: int = 500
    """Number of commits that move the version by one."""


class OffsetTable:
    """The table. ``now_ms`` is the wall clock: it stamps versions, and decides nothing."""

    def __init__(self, config: OffsetsConfig, now_ms: Callable[[], int], kept: ConsumerOffsets | None = None) -> None:
        """``kept``: what was on disk."""
        self.config = config
        self._now_ms = now_ms
        self.state_version = 0
        """The master epoch, under a controller."""
        self.on_change: Callable[[], None] = lambda: None
        """Called after each change, so it must be cheap."""
        self.on_reset: Callable[[str, str, int], None] = lambda group, topic, queue_id: None
        """Called with what was reset; ``on_change`` was called before."""
        self.on_commit: Callable[[str, str, int, int], None] = lambda group, topic, queue_id, offset: None
        """Called with what a client committed, or an administrator reset."""
        self.on_moved: Callable[[str, str, int, int, int], None] = lambda group, topic, queue_id, offset, least: None
        """Called when a group that wants ``offset`` is sent on to ``least``, where the queue begins here."""
        self.frozen = False
        """True: commits are ignored, since another broker takes this table over, or this one is to take over others'.
        """
        self.knows_more = False
        """True: positions were said here, and no master's table was copied since."""
        kept = kept or ConsumerOffsets()
        self._version = kept.data_version
        self._offsets = {key: dict(queues) for key, queues in kept.offset_table.items()}
        """Offsets by ``topic@group`` and queue id; the other tables have the same keys."""
        self._pulled: dict[str, dict[int, int]] = {}
        self._resets: dict[str, dict[int, int]] = {}
        self._told: dict[tuple[str, int], tuple[int, int]] = {
            (key, queue_id): (offset, 0) for key, queues in (kept.reset_table or {}).items()
            for queue_id, offset in queues.items()}
        """Resets of the master's, or of a process before, by ``topic@group`` and queue id, that perhaps no pull has
        seen: where the group goes on, and how many copies of the master's table may be older."""
        self._commits = 0
        self._gone: dict[tuple[str, str], int] = {}
        """Topics and groups that are gone at the master, and how many more copies of its table are checked for them."""

    # --- reading ---------------------------------------------------------------------------------------------

    def query(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return the offset of the next message that the group wants, or gets after a reset; None: it never said."""
        key = f"{topic}@{group}"
        if self._resets and self.config.use_server_side_reset_offset:
            reset = self._resets.get(key, _NONE).get(queue_id)
            if reset is not None:
                return reset
        return self._offsets.get(key, _NONE).get(queue_id)

    def query_pulled(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return the offset after the last message that it was given, processed or not."""
        pulled = self._pulled.get(f"{topic}@{group}", _NONE).get(queue_id)
        return self.query(group, topic, queue_id) if pulled is None else pulled

    def of(self, group: str, topic: str) -> Mapping[int, int]:
        """The group's offsets in the topic, by queue id."""
        return self._offsets.get(f"{topic}@{group}", _NONE)

    def topics_of(self, group: str) -> list[str]:
        """Topics in which the group has offsets, sorted."""
        return sorted(topic for topic, _, name in (key.partition("@") for key in self._offsets) if name == group)

    def groups_of(self, topic: str) -> list[str]:
        """Groups that have offsets in the topic, sorted."""
        return sorted(name for found, _, name in (key.partition("@") for key in self._offsets) if found == topic)

    def least(self, topic: str, without: Collection[str], min_offset: Callable[[int], int]) -> dict[int, int]:
        """Return each queue's least offset of all groups, except groups in ``without`` and offsets before the queue."""
        found: dict[int, int] = {}
        for group in self.groups_of(topic):
            if group in without:
                continue
            for queue_id, offset in self.of(group, topic).items():
                if offset >= min_offset(queue_id):
                    found[queue_id] = min(offset, found.get(queue_id, offset))
        return found

    @property
    def version(self) -> DataVersion:
        return self._version

    @property
    def version_ahead(self) -> DataVersion:
        """The version for a returning master of RocketMQ's."""
        return self._version.ahead(self._now_ms())

    def snapshot(self) -> ConsumerOffsets:
        """The content of ``consumerOffset.json``, as it is now."""
        resets = {key: dict(queues) for key, queues in self._resets.items()}
        for (key, queue_id), (offset, _) in self._told.items():
            resets.setdefault(key, {})[queue_id] = offset
        return ConsumerOffsets({key: dict(queues) for key, queues in self._offsets.items()},
                               data_version=self._version, reset_table=resets or None)

    # --- changing --------------------------------------------------------------------------------------------

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Set the offset that a client says, also backwards; below 0 is no offset."""
        if offset < 0 or self.frozen:
            return
        key = f"{topic}@{group}"
        queues = self._offsets.get(key)
        if queues is None:
            queues = self._offsets[key] = {}
        queues[queue_id] = offset
        self.knows_more = True
        self._commits += 1
        if self._commits % self.config.consumer_offset_update_version_step == 0:
            self._version = DataVersion(self.state_version, self._now_ms(), self._version.counter + 1)
        self.on_change()
        self.on_commit(group, topic, queue_id, offset)

    def take(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Set the offset that was committed at another broker."""
        self._offsets.setdefault(f"{topic}@{group}", {})[queue_id] = offset
        self.on_change()

    def end_at(self, end_of: Callable[[bytes, int], int | None]) -> None:
        """This broker is to store messages: no group is behind the next one, whatever was deleted or lost before it.

        ``end_of`` returns where a queue ends, None: unknown. A position behind it would pass over what comes there."""
        for key, queues in self._offsets.items():
            topic = key.partition("@")[0].encode(errors="replace")
            for queue_id, offset in queues.items():
                end = end_of(topic, queue_id)
                if end is not None and offset > end:
                    queues[queue_id] = end
                    self.on_change()

    def pulled(self, group: str, topic: str, queue_id: int, next_offset: int) -> None:
        """The group was given what is in front of ``next_offset``."""
        key = f"{topic}@{group}"
        queues = self._pulled.get(key)
        if queues is None:
            queues = self._pulled[key] = {}
        queues[queue_id] = next_offset

    def reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Reset the group to ``offset``: its next pull is sent there."""
        key = f"{topic}@{group}"
        self._resets.setdefault(key, {})[queue_id] = offset
        self._offsets.setdefault(key, {})[queue_id] = offset
        self.on_change()
        self.on_commit(group, topic, queue_id, offset)
        self.on_reset(group, topic, queue_id)

    def heard_reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """The log says that a master reset it."""
        key = f"{topic}@{group}"
        self._told[key, queue_id] = offset, COPIES_OLDER
        self._offsets.setdefault(key, {})[queue_id] = offset
        self.on_change()

    def serves(self) -> None:
        """Consumers ask this broker from now on: resets that no pull has seen come into force."""
        for (key, queue_id), (offset, _) in self._told.items():
            self._resets.setdefault(key, {})[queue_id] = offset
        self._told.clear()

    def is_reset(self, group: str, topic: str, queue_id: int) -> bool:
        """Return whether a reset waits for the next pull."""
        return bool(self._resets) and queue_id in self._resets.get(f"{topic}@{group}", _NONE)

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return where a reset has a pull go on, once; None: there is no reset."""
        if not self._resets:
            return None
        key = f"{topic}@{group}"
        queues = self._resets.get(key)
        if queues is None:
            return None
        offset = queues.pop(queue_id, None)
        if not queues:
            del self._resets[key]
        if offset is not None:
            self.on_change()
        return offset

    def clone(self, source: str, target: str, topic: str) -> None:
        """Let group ``target`` go on where ``source`` is."""
        found = self._offsets.get(f"{topic}@{source}")
        if found is not None:
            self._offsets[f"{topic}@{target}"] = dict(found)
            self.on_change()

    def forget_group(self, group: str) -> None:
        self._forget(f"@{group}", str.endswith)

    def forget_topic(self, topic: str) -> None:
        self._forget(f"{topic}@", str.startswith)

    def _forget(self, part: str, fits: Callable[[str, str], bool]) -> None:
        for table in (self._offsets, self._pulled, self._resets):
            for key in [key for key in table if fits(key, part)]:
                del table[key]
        self._told = {place: told for place, told in self._told.items() if not fits(place[0], part)}
        self.on_change()

    def drop_copied(self, topic: str, group: str) -> None:
        """Drop a topic or group that the master has forgotten. A copy that is on its way may still hold it."""
        self._gone[topic, group] = COPIES_OLDER

    def _is_gone(self, key: str) -> bool:
        topic, _, group = key.partition("@")
        return (topic, "") in self._gone or ("", group) in self._gone

    def merge(self, table: ConsumerOffsets) -> None:
        """Take over the master's offsets and version.

        Resets of this broker's own mastership are dropped: they must not come into force when it is master again."""
        self.knows_more = False
        self._resets.clear()
        for key in [key for key in self._offsets if key not in table.offset_table and self._is_gone(key)]:
            del self._offsets[key]
        self._gone = {name: left - 1 for name, left in self._gone.items() if left > 1}
        self._offsets |= {key: dict(queues) for key, queues in table.offset_table.items()}
        self._keep_resets()
        self._version = table.true_version or table.data_version
        self.on_change()

    def _keep_resets(self) -> None:
        """A copy of the master's table came: it is older than a reset that it does not have, or the group has gone on.
        """
        for (key, queue_id), (offset, older) in list(self._told.items()):
            queues = self._offsets.setdefault(key, {})
            if queues.get(queue_id) == offset:
                self._told[key, queue_id] = offset, 0
            elif older:
                self._told[key, queue_id], queues[queue_id] = (offset, older - 1), offset
            else:
                del self._told[key, queue_id]

    def join(self, answer: bytes, end_of: Callable[[str, int], int]) -> None:
        """Take what a member knows better, from its answer to 43: all of a newer version, else offsets further on.

        ``end_of`` returns where a queue of a topic ends: no group has read beyond that. Raises ``BodyError``."""
        told = ConsumerOffsets.from_json(answer)
        version = told.true_version or told.data_version
        newer = self._version.precedes(version)
        for key, queues in told.offset_table.items():
            topic, kept = key.partition("@")[0], self._offsets.get(key, _NONE)
            taken = {queue_id: offset for queue_id, offset in queues.items()
                     if 0 <= offset <= end_of(topic, queue_id) and (newer or offset > kept.get(queue_id, -1))}
            if taken:
                self._offsets[key] = {**kept, **taken}
        if newer:
            self._version = version
        self.on_change()

    def copy(self, answer: bytes) -> None:
        """Merge a master's answer to 43. Raises ``BodyError``."""
        self.merge(ConsumerOffsets.from_json(answer))
