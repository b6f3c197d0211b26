"""Committed and marked messages are handed on once each, in order, whatever was read, told again, or cut."""

from __future__ import annotations

from random import Random

import attrs
import pytest
from trio.testing import MockClock, wait_all_tasks_blocked

from broker.moments import Moment
from broker.noted import Noted, is_noted
from broker.store.errors import OffsetGone
from broker.store.files import MemoryFiles
from broker.store.log import Log
from broker.store.store import MessageStore, StoreConfig
from broker.store.visible import Visible
from broker.store.writing import Put
from remoting.record import COMMIT, NOTED, PREPARED, ROLLBACK, Message, Outline
from tests.broker.test_journal import bodies, running

FLAGS = (0, 0, 0, PREPARED, COMMIT, ROLLBACK, NOTED, COMMIT | NOTED)


@attrs.define
class Shown:
    """A store of which somebody shows more and more."""

    store: MessageStore
    noted: Moment[[Outline]] = attrs.field(factory=lambda: Moment("Journal.noted"))
    was_cut: Moment[[int]] = attrs.field(factory=lambda: Moment("Journal.was_cut"))

    def __attrs_post_init__(self) -> None:
        self.store.noted.call = self.noted

    @property
    def log(self) -> Log:
        return self.store.log

    @property
    def visible(self) -> Visible:
        return self.store.visible

    def put(self, sys_flag: int) -> Put:
        if not self.store.writer.is_numbered:
            self.store.take_over()
        return self.store.writer.put(Message(b"t", b"x" * 20, 0, sys_flag=sys_flag), 0)

    def marked(self) -> list[int]:
        """Where they stand, of all that is shown."""
        return [found[0] for found in self.log.scan(0, self.visible.offset) if is_noted(found[4])]


def opened(files: MemoryFiles) -> Shown:
    store = MessageStore(files, StoreConfig(log_file_bytes=4096, queue_file_bytes=20 * 16, index=False))
    store.open()
    return Shown(store)


@pytest.mark.parametrize("seed", range(40))
def test_each_is_handed_on_once_across_starts_and_cuts(seed: int) -> None:
    rng, files = Random(seed), MemoryFiles()
    kept: list[int] = []
    offset = 0
    for _ in range(6):
        shown, taken = opened(files), [at for at in kept if at < offset]

        def cut(end: int, taken: list[int] = taken) -> None:
            taken[:] = [at for at in taken if at < end]

        def take(found: Outline, taken: list[int] = taken) -> None:
            taken.append(found[0])

        noted = Noted(shown, offset, take, cut)
        for _ in range(60):
            what = rng.random()
            if what < 0.6:
                shown.put(rng.choice(FLAGS))
            elif what < 0.8:
                shown.visible.advance_some(shown.log.max_offset, rng.randrange(1, 9))
            elif what < 0.95:
                noted.catch_up()
            elif what < 0.97:
                end = rng.choice([found[0] for found in shown.log.scan(0)] or [0])
                shown.store.truncate(end)
                shown.was_cut(end)
        shown.visible.advance()
        while noted.catch_up():
            pass
        assert taken == shown.marked()
        assert noted.offset >= shown.visible.offset
        kept, offset = taken, rng.choice((noted.offset, *(taken[-1:] or [0])))
        if rng.random() < 0.3:
            shown.store.truncate(rng.choice([found[0] for found in shown.log.scan(0)] or [0]))
        shown.store.close()


def test_what_is_shown_again_is_not_handed_on_again() -> None:
    shown, taken = opened(MemoryFiles()), list[int]()
    noted = Noted(shown, 0, lambda found: taken.append(found[0]))
    for _ in range(5):
        shown.put(COMMIT)
    shown.visible.advance()
    shown.visible.start_at(0)
    shown.visible.advance()
    assert not noted.behind
    assert taken == shown.marked()
    assert len(taken) == 5


@pytest.mark.parametrize("late", [True, False])
@pytest.mark.parametrize(("flag", "of"), [(COMMIT, (4, 7)), (NOTED, (6, 7))])
def test_some_listen_to_committed_messages_alone_or_to_marked_ones(flag: int, of: tuple[int, ...], late: bool) -> None:
    shown, taken = opened(MemoryFiles()), list[int]()
    puts = [shown.put(each) for each in FLAGS]
    if late:
        shown.visible.advance()
    noted = Noted(shown, 0, lambda found: taken.append(found[0]), flags=flag)
    shown.visible.advance()
    while noted.catch_up():
        pass
    assert taken == [puts[number].offset for number in of]


def test_a_log_that_was_cut_before_the_start_is_said_at_once() -> None:
    shown, ends = opened(MemoryFiles()), list[int]()
    shown.put(COMMIT)
    shown.visible.advance()
    noted = Noted(shown, shown.log.max_offset + 100, lambda found: None, ends.append)
    assert ends == [shown.log.max_offset]
    assert noted.offset == shown.log.max_offset


def test_ordinary_messages_tell_nobody() -> None:
    shown, told = opened(MemoryFiles()), list[Outline]()
    shown.noted.join("watch", told.append)
    for flag in (0, 1, PREPARED, ROLLBACK, PREPARED | NOTED):
        shown.put(flag)
    shown.visible.advance()
    assert not told


async def test_a_journal_tells_what_is_confirmed_and_when_it_is_cut(autojump_clock: MockClock) -> None:
    async with running() as journal:
        taken, ends = list[int](), list[int]()
        noted = Noted(journal, 0, lambda found: taken.append(found[0]), ends.append)
        puts = journal.append([Message(b"t", b"%d" % flag, sys_flag=flag) for flag in FLAGS])
        await wait_all_tasks_blocked()
        assert not taken, "nothing is confirmed"
        journal.confirm(puts[5].offset)
        await wait_all_tasks_blocked()
        assert taken == [puts[4].offset]
        journal.confirm(journal.end)
        await wait_all_tasks_blocked()
        assert taken == [puts[number].offset for number in (4, 6, 7)]
        assert noted.offset == journal.end
        journal.truncate(puts[6].offset)
        assert ends == [puts[6].offset] == [noted.offset]
        assert bodies(journal) == ["0", "0", "0", "8"]
        with pytest.raises(OffsetGone):
            journal.truncate(puts[7].offset)
        assert len(ends) == 1
        journal.truncate(0, everything=True)
        assert ends[-1] == 0
        assert noted.offset == 0
