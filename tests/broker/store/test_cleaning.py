"""Old files of the log go, and queues begin later, whoever deleted the files."""

from __future__ import annotations

import pytest

from broker.store.errors import OffsetGone
from broker.store.files import Files, MemoryFiles
from tests.broker.store.small import delete_before, message, opened, seen


def test_old_files_go_and_queues_begin_later() -> None:
    files = MemoryFiles()
    store = opened(files)
    for number in range(100):
        store.writer.put(message("t", 0, f"m{number}"), number)
    store.visible.advance()
    store.flush()
    delete_before(store, 5000)
    least = store.messages.min_offset(b"t", 0)
    for _ in range(2):
        assert least == store.messages.min_offset(b"t", 0) > 0 and store.log.min_offset == 4096
        assert seen(store) == [f"m{number}" for number in range(least, 100)]
        with pytest.raises(OffsetGone):
            store.messages.get(b"t", 0, least - 1)
        store.close()
        store = opened(files)
    for name in [name for name in files.content if name.startswith("consumequeue/")]:
        files.remove(name)
    again = opened(files)
    again.visible.advance()
    assert (again.messages.min_offset(b"t", 0), seen(again)) == (least, [f"m{number}" for number in range(least, 100)])


def test_old_files_that_an_operator_removed_first_keep_back_no_others(files: Files) -> None:
    """To get room again, as is common."""
    store = opened(files)
    for number in range(400):
        store.writer.put(message("t", 0, f"m{number}"), number)
    store.visible.advance()
    store.flush()
    for folder in ("commitlog", "consumequeue/t/0", "index"):
        names = files.list(folder)
        assert len(names) > 3
        files.remove(f"{folder}/{names[0]}")
    delete_before(store, 3 * 4096)
    assert files.list("commitlog")[0] == f"{3 * 4096:020d}"
    least = store.messages.min_offset(b"t", 0)
    store.close()
    again = opened(files)
    assert seen(again) == [f"m{number}" for number in range(least, 400)]
    again.close()


def test_what_consumers_do_not_see_yet_stays_in_the_log() -> None:
    store = opened(MemoryFiles())
    puts = [store.writer.put(message("t", 0, f"m{number}"), number) for number in range(100)]
    store.flush()
    store.visible.advance(puts[30].offset)
    delete_before(store, puts[90].offset)
    assert 0 < store.log.min_offset <= puts[30].offset
    store.visible.advance()
    assert seen(store)[-70:] == [f"m{number}" for number in range(30, 100)]


def test_queues_forget_what_is_gone_some_at_a_time() -> None:
    store = opened(MemoryFiles())
    for number in range(300):
        store.writer.put(message("t", number % 5, f"m{number}"), number)
    store.visible.advance()
    store.flush()
    for _ in store.cleaner.release_before(8_192):
        pass
    assert [store.cleaner.clean(2) for _ in range(3)] == [True, True, False]
