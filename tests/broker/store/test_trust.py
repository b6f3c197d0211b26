"""After its machine went down a log is trusted as far as it was synced, until it is level with a master's."""

from __future__ import annotations

from random import Random

import pytest

from broker.journal import Journal, JournalConfig
from broker.store.checkpoint import PATH as CHECKPOINT
from broker.store.disk import InlineDisk
from broker.store.files import MemoryFile, MemoryFiles, write_whole
from broker.store.store import MessageStore, StoreConfig
from broker.store.trust import PATH, WHOLE, Trust, TrustFile, doubted_from
from remoting.record import Message

SMALL = StoreConfig(log_file_bytes=4_096, queue_file_bytes=20 * 8, index=False)


def opened(files: MemoryFiles, boot: str = "first", *, synced: bool = False) -> MessageStore:
    store = MessageStore(files, SMALL, boot=boot, synced=synced)
    store.open()
    return store


def put(store: MessageStore, count: int = 1) -> int:
    if not store.writer.is_numbered:
        store.take_over()
    for _ in range(count):
        store.writer.put(Message(b"T", b"x" * 100), 1)
    store.log.write()
    store.visible.advance()
    return store.log.max_offset


def state(store: MessageStore) -> tuple[bool, int | None]:
    return store.trust.in_doubt, store.trust.trusted_end


def half_flushed(files: MemoryFiles, *, synced: bool = False) -> int:
    """A killed process flushed the half of what it wrote; where that ends."""
    store = opened(files, synced=synced)
    flushed = put(store, 5)
    store.flush()
    put(store, 5)
    store.abandon()
    return flushed


def test_what_was_not_flushed_is_not_trusted_in_another_boot() -> None:
    files = MemoryFiles()
    flushed = half_flushed(files)
    assert state(opened(files, "second")) == (True, flushed)


def test_a_boot_that_nobody_knows_is_another_one() -> None:
    files = MemoryFiles()
    flushed = half_flushed(files)
    for _ in range(2):
        store = opened(files, "")
        assert state(store) == (True, flushed)
        store.abandon()


def test_in_the_same_boot_the_system_has_all() -> None:
    files = MemoryFiles()
    half_flushed(files)
    assert state(opened(files)) == (False, None)


def test_a_store_that_was_closed_in_order_is_trusted() -> None:
    files = MemoryFiles()
    store = opened(files)
    put(store, 5)
    store.close()
    assert state(opened(files, "second")) == (False, None)


def test_of_a_synced_log_nothing_was_acknowledged_before() -> None:
    files = MemoryFiles()
    half_flushed(files, synced=True)
    store = opened(files, "second")
    assert state(store) == (False, None), "as of the process that wrote it"
    store.abandon()
    assert state(opened(files, "third")) == (True, 5 * (store.log.max_offset // 10)), "this one was not"


def test_all_that_came_back_may_be_less_than_there_was() -> None:
    files = MemoryFiles()
    flushed = half_flushed(files)
    files.crash()
    store = opened(files, "second")
    assert store.log.max_offset == flushed and state(store) == (True, None), "nothing to copy again, and still in doubt"


def test_doubt_outlives_restarts_and_checkpoints() -> None:
    files = MemoryFiles()
    flushed = half_flushed(files)
    for boot in ("second", "second", "third"):
        store = opened(files, boot)
        assert state(store) == (True, flushed)
        store.visible.advance()
        store.flush()
        store.abandon()
    store = opened(files, "third")
    store.close()
    store = opened(files, "fourth")
    assert state(store) == (True, flushed), "nobody compared it meanwhile"
    store.trust.regained()
    assert state(store) == (False, None)
    store.abandon()
    assert state(opened(files, "fourth")) == (False, None)


def test_what_stands_where_a_log_in_doubt_was_cut_is_new_and_not_synced() -> None:
    files = MemoryFiles()
    flushed = half_flushed(files)
    store = opened(files, "second")
    cut = flushed // 5
    store.truncate(flushed)
    assert state(store) == (True, None), "nothing is behind"
    store.truncate(cut)
    put(store, 6)
    store.abandon()
    assert state(opened(files, "third")) == (True, cut)


@pytest.mark.parametrize("cut", [True, False])
def test_what_is_copied_while_in_doubt_is_cut_by_no_start_of_the_same_boot(cut: bool) -> None:
    """Whoever copied it may have joined the SyncStateSet meanwhile, and be asked for it."""
    files = MemoryFiles()
    flushed = half_flushed(files)
    if not cut:
        files.crash()  # all that is left was synced
    store = opened(files, "second")
    if cut:
        store.truncate(flushed)
    put(store, 6)
    store.abandon()
    for _ in range(2):
        store = opened(files, "second")
        assert state(store) == (True, None), "it may lack what it acknowledged, and all that is here is right"
        store.abandon()
    assert state(opened(files, "third")) == (True, flushed), "what was copied was not synced"


def test_a_kill_within_a_cut_trusts_nothing_new() -> None:
    """Bytes that were not synced may be there still."""
    files = MemoryFiles()
    flushed = half_flushed(files)
    store = opened(files, "second")

    def killed(offset: int) -> None:
        raise KeyboardInterrupt

    store.visible.truncate = killed  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        store.truncate(flushed)
    store.abandon()
    found = TrustFile(files, "second", synced=False).read()
    assert found is not None and found.upto == flushed


def test_a_mark_that_cannot_be_read_is_none() -> None:
    files = MemoryFiles()
    flushed = half_flushed(files)
    for text in (b"", b"\0" * 20, b"second\nASYNC_FLUSH\n", b"second\nASYNC\n-1\n", b"second\nASYNC_FLUSH\nx\n"):
        write_whole(files, PATH, text)
        store = opened(files, "second")
        assert state(store) == (True, flushed)
        store.abandon()


def test_the_store_of_an_earlier_release_that_was_killed_is_in_doubt() -> None:
    files = MemoryFiles()
    old = MessageStore(files, SMALL)
    old.open()
    put(old, 3)
    assert state(old) == (False, None)
    old.abandon()
    assert state(opened(files)) == (True, 0)


def test_an_empty_store_has_nothing_to_doubt() -> None:
    files = MemoryFiles()
    files.open("abort", create=True)
    assert state(opened(files)) == (False, None)


def test_a_full_disk_stops_no_start() -> None:
    files = MemoryFiles()
    flushed = half_flushed(files)
    said: list[str] = []

    def full(what: str) -> None:
        if what == "write":
            raise OSError(28, "No space left on device")

    store = MessageStore(files, SMALL, boot="second")
    store.on_trouble.call = said.append
    files.content[f"{PATH}.tmp"] = MemoryFile(hook=full)
    store.open()
    assert state(store) == (True, flushed)
    assert len(said) == 1 and "the next start will doubt the log" in said[0]


async def test_after_a_failure_of_the_disk_the_log_is_in_doubt_in_the_same_boot() -> None:
    files = MemoryFiles()
    store = MessageStore(files, SMALL, boot="first")
    journal = Journal(store, JournalConfig(), disk=InlineDisk())
    journal.open()
    put(store, 3)
    log = files.content["commitlog/00000000000000000000"]
    log.fault = OSError(5, "Input/output error")
    await journal.close()
    assert journal.failure is not None
    log.fault = None
    assert state(opened(files)) == (True, 0)


@pytest.mark.parametrize("seed", range(30))
def test_the_mark_may_trail_what_was_synced_and_never_leads(seed: int) -> None:
    rng, files, sure = Random(seed), MemoryFiles(), 0
    for boot in range(6):
        store = opened(files, str(boot))
        assert store.trust.in_doubt == (boot > 0)
        if store.trust.trusted_end is not None:
            assert store.trust.trusted_end <= sure
        if rng.random() < 0.5:
            store.truncate(store.log.max_offset if store.trust.trusted_end is None else store.trust.trusted_end)
            store.trust.regained()
        for _ in range(rng.randrange(12)):
            put(store)
            if rng.random() < 0.3:
                store.flush()
                if store.trust.trusted_end is None:  # nothing is here of before
                    sure = store.log.flushed_offset
            if rng.random() < 0.1:
                cut = rng.choice([offset for offset, *_ in store.log.scan(0)])
                store.truncate(cut)
                sure = min(sure, cut)
        if not store.trust.in_doubt:
            sure = store.log.flushed_offset
        store.abandon()
        kind = rng.randrange(3)
        files.crash(lambda size, kind=kind: (0, size, rng.randint(0, size))[kind])  # type: ignore[misc]


@pytest.mark.parametrize(("found", "killed", "expected"), [
    (None, False, -1), (None, True, 7), (Trust("b"), True, -1), (Trust("a"), False, -1), (Trust("a"), True, 7),
    (Trust(""), True, 7), (Trust("a", True), True, -1), (Trust("b", False, 5), True, 5),
    (Trust("a", False, 5), True, 5), (Trust("a", True, 9), True, 7), (Trust("a", False, 9), False, 9),
    (Trust("b", False, 9), True, 9), (Trust("b", False, WHOLE), True, WHOLE), (Trust("a", False, WHOLE), True, 7),
    (Trust("a", False, WHOLE), False, WHOLE),
])
def test_from_where_on_a_log_is_doubted(found: Trust | None, killed: bool, expected: int) -> None:
    assert doubted_from(found, "b", killed=killed, flushed=7) == expected


def test_java_leaves_the_mark_alone() -> None:
    files = MemoryFiles()
    opened(files).close()
    assert files.content[PATH].data == b"first\nASYNC_FLUSH\n-1\n" and PATH.startswith(CHECKPOINT)
