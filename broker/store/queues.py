"""All consume queues of a store, by topic and queue id: opened together, told in runs, flushed, cut and deleted.

They can always be built again from the log. Source: ``ConsumeQueueStore`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from broker.moments import Listener
from broker.store.consumequeue import ENTRY, GATHERED, ConsumeQueue, Hear
from broker.store.dispatch import TagCodes
from broker.store.files import File, Files
from broker.store.log import Run
from remoting.record import NOTED, PREPARED, ROLLBACK, Outline, is_folder_name

FOLDER: Final = "consumequeue"
_MARKED: Final = ROLLBACK | NOTED
_ENTRIES_MAX: Final = 1 << 58
"""Most entries of one queue: its bytes are counted in 64 bits."""
Queue = tuple[bytes, int]
"""Topic and queue id."""


class Queues:
    """The queues of one store; ``open`` comes first."""

    def __init__(self, files: Files, tag_codes: TagCodes, *, file_bytes: int) -> None:
        self._files, self._file_bytes = files, file_bytes
        self._code = tag_codes.code
        self._queues: dict[Queue, ConsumeQueue] = {}
        self._changed: dict[ConsumeQueue, None] = {}
        """Queues with entries that were not flushed; a set that keeps its order."""
        self._new_folders: set[str] = set()
        self._unsynced: list[File] = []
        self.arrived: Listener[[bytes, int, int, int, Outline]] = Listener()
        """Hears of each message that consumers see from then on: topic, queue id, queue offset, code of the tag,
        outline."""
        self.noted: Listener[[Outline]] = Listener()
        """Hears of each committed or ``NOTED`` message before it is in its queue; perhaps again, if the disk is full.
        """
        self._hearers: dict[Queue, Hear] = {}
        self.on_new: Listener[[bytes]] = Listener()
        """Hears the topic of each queue that begins."""
        self.on_trouble: Listener[[str]] = Listener()
        """Hears what an operator should know."""
        self.on_damage: Listener[[bytes, int]] = Listener()
        """Hears topic and queue id of a queue that has entries which are none."""
        self._taken = self._told = -1
        """Offsets in the log of the last message that was ever taken, and of the last that was told. Up to the former
        messages are told again."""
        self._grown: set[ConsumeQueue] = set()
        """Queues that took a message since others were first told again: what follows in the log is newer."""
        self.damaged = False
        """Entries of messages that were flushed are gone: all must be told again."""

    def open(self, log_min: int, log_end: int, sure: int) -> None:
        """Entries of messages below ``sure`` were all flushed. Raises ``WrongStore``."""
        self._taken = log_end
        for topic in self._files.list(FOLDER):
            for number in self._files.list(f"{FOLDER}/{topic}"):
                if number.isdecimal():
                    queue = self._make((topic.encode(), int(number)))
                    queue.open(log_end, sure)
                    queue.correct_min(log_min)
                    if queue.damaged:
                        queue.damaged, self.damaged = False, True
                        queue.end_where_it_did()
                        self.say(f"queue {number} of {topic} was damaged after it was flushed: it is built again "
                                 "from the log")
                    if queue.is_unsynced:
                        self._changed[queue] = None

    def __len__(self) -> int:
        return len(self._queues)

    def keys(self) -> list[Queue]:
        return sorted(self._queues)

    def get(self, topic: bytes, queue_id: int, log_min: int) -> ConsumeQueue | None:
        """The queue, without entries of messages below ``log_min``."""
        queue = self._queues.get((topic, queue_id))
        if queue is not None and queue.log_min != log_min:
            self._correct_min((topic, queue_id), queue, log_min)
        return queue

    def _correct_min(self, key: Queue, queue: ConsumeQueue, log_min: int) -> None:
        queue.correct_min(log_min)
        assert queue.log_min == log_min, "it knows where the log begins"
        if queue.damaged:
            self.on_damage.call(*key)

    def peek(self, key: Queue) -> ConsumeQueue | None:
        """The queue as it is."""
        return self._queues.get(key)

    def max_offsets(self) -> dict[Queue, int]:
        return {key: queue.max_offset for key, queue in self._queues.items()}

    def listen(self, key: Queue, call: Hear) -> None:
        """Have ``call`` hear of each message of that queue, behind its entry; perhaps again, if the disk is full."""
        self._hearers[key] = call
        queue = self._queues.get(key)
        if queue is not None:
            queue.heard = call

    def take(self, run: Run) -> None:
        """Make entries for messages of the log, in its order. Messages that are told again change nothing, also where
        their topic was deleted since, and has other messages in their places or in front of them.

        Raises:
            OSError: the disk is full. Tell them again.
        """
        queues, arrived, tags_code, pack = self._queues, self.arrived.call, self._code, ENTRY.pack
        changed, gathered, marked, noted = self._changed, GATHERED - 1, _MARKED, self.noted.call
        heard = self.arrived.is_heard
        again, grown = self._is_told_again(run), self._grown
        for found in run:
            offset, size, queue_id, queue_offset, sys_flag, time_ms, topic, properties = found
            if sys_flag & marked:
                if sys_flag & PREPARED:
                    continue
                noted(found)
            queue = queues.get((topic, queue_id))
            if queue is None:
                if not self.has_place(topic, queue_id, queue_offset, 0):
                    self._in_no_queue(offset, topic, queue_id, queue_offset, 0)
                    continue
                queue = self._make((topic, queue_id))
                self.on_new.call(topic)
            code = tags_code(topic, properties, time_ms)
            changed[queue] = None
            if again and queue not in grown and queue.min_offset <= queue_offset and not self._grows(queue, offset):
                pass  # it is there, or its topic was deleted and this queue is of the topic that was made again
            elif queue_offset == queue.max_offset:
                queue.tail += pack(offset, size, code)
                queue.max_offset = queue_offset + 1
                if not queue_offset & gathered:
                    queue.write()
            elif self.has_place(topic, queue_id, queue_offset, queue.max_offset):
                queue.append(queue_offset, offset, size, code)
            else:
                self._in_no_queue(offset, topic, queue_id, queue_offset, queue.max_offset)
                continue
            if queue.heard is not None:
                queue.heard(found, run.near)
            if heard:
                arrived(topic, queue_id, queue_offset, code, found)

    def _is_told_again(self, run: Sequence[Outline]) -> bool:
        if not run:
            return False
        first, last = run[0][0], run[-1][0]
        again = first <= self._taken
        if first <= self._told or not again:
            self._grown.clear()
        self._told, self._taken = last, max(self._taken, last)
        return again

    def _grows(self, queue: ConsumeQueue, offset: int) -> bool:
        """Return whether a message at that offset of the log is newer than all of the queue."""
        if offset <= queue.last_offset:
            return False
        self._grown.add(queue)
        return True

    def _in_no_queue(self, offset: int, topic: bytes, queue_id: int, queue_offset: int, end: int) -> None:
        self.say(f"the message at offset {offset} of the log is in no queue: it says place {queue_offset} of queue "
                 f"{queue_id} of topic {topic[:60]!r}, which ends at {end}")

    def tag_code(self, topic: bytes, properties: bytes, store_time_ms: int) -> int:
        """Return the tag code that a queue's entry of such a message has."""
        return self._code(topic, properties, store_time_ms)

    def to_flush(self, key: Queue) -> None:
        """Flush that queue next time: others changed its entries."""
        queue = self._queues.get(key)
        if queue is not None:
            self._changed[queue] = None

    def say(self, words: str) -> None:
        """Tell the operator, if anybody listens."""
        self.on_trouble.call(words)

    def has_place(self, topic: bytes, queue_id: int, queue_offset: int, end: int) -> bool:
        """Return whether a message may have that place in a queue that ends at ``end`` (0: a new queue).

        No checksum covers the place in its record; no writer leaves a whole file between it and the end."""
        if not end:
            return is_folder_name(topic) and queue_id >= 0 and 0 <= queue_offset < _ENTRIES_MAX
        return 0 <= queue_offset <= min(end + self._file_bytes // ENTRY.size, _ENTRIES_MAX)

    def _make(self, key: Queue) -> ConsumeQueue:
        assert key not in self._queues, "a queue has its files to itself"
        folder = f"{FOLDER}/{key[0].decode()}"
        self._new_folders |= {"", FOLDER, folder}
        queue = self._queues[key] = ConsumeQueue(self._files, f"{folder}/{key[1]}", file_bytes=self._file_bytes)
        queue.heard = self._hearers.get(key)
        return queue

    # --- changes of the whole --------------------------------------------------------------------------------

    def begin(self, ends: Mapping[Queue, int]) -> None:
        """Begin queues that never had a message here at those ends, which other replicas know: of messages in front of
        the log. Raises ``OSError``."""
        for key, end in ends.items():
            queue = self._queues.get(key)
            if queue is None and 0 < end and self.has_place(*key, end, 0):
                queue = self._make(key)
                self.on_new.call(key[0])
            if queue is not None:
                self._changed[queue] = None
                queue.begin_at(end)

    @property
    def is_unsynced(self) -> bool:
        """Something is to be synced."""
        return bool(self._changed or self._unsynced or self._new_folders)

    def to_sync(self) -> tuple[list[File], list[str]]:
        """Files and folders to sync for what was told to be durable. Raises ``OSError`` when it cannot be written."""
        folders: list[str] = []
        files, self._unsynced = self._unsynced, []
        try:
            for queue in tuple(self._changed):
                of_queue, of_folders = queue.to_sync()
                files += of_queue
                folders += of_folders
                del self._changed[queue]
        except OSError:
            self.not_synced(files, folders)
            raise
        assert not self._changed, "each queue that changed is written"
        folders += sorted(self._new_folders)
        self._new_folders.clear()
        return files, folders

    def not_synced(self, files: Iterable[File], folders: Iterable[str]) -> None:
        """A flush was left off: these are synced with the next one."""
        self._unsynced += files
        self._new_folders.update(folders)

    def truncate(self, log_end: int) -> None:
        self._taken = min(self._taken, log_end - 1)
        for queue in self._queues.values():
            queue.truncate(log_end)
            self._changed[queue] = None

    def correct_min(self, log_min: int, most: int) -> bool:
        """Give up entries of messages below ``log_min``, of ``most`` queues at a time. True: more of them wait."""
        assert most >= 0
        behind = [(key, queue) for key, queue in self._queues.items() if queue.log_min != log_min]
        for key, queue in behind[:most]:
            self._correct_min(key, queue, log_min)
        return len(behind) > most

    def delete(self, topics: Iterable[bytes] | None = None) -> int:
        """Destroy all queues of these topics, or of all; returns how many there were."""
        wanted = None if topics is None else frozenset(topics)
        gone = [key for key in self._queues if wanted is None or key[0] in wanted]
        for key in gone:
            queue = self._queues.pop(key)
            self._changed.pop(queue, None)
            queue.destroy()
        for topic in sorted({topic.decode() for topic, _ in gone}):
            self._files.remove_folder(f"{FOLDER}/{topic}")
        assert self._changed.keys() <= {*self._queues.values()}, "nothing is flushed of what is gone"
        if gone:
            self._files.sync_dir(FOLDER)
        return len(gone)

    def close(self) -> None:
        for queue in self._queues.values():
            queue.close()
