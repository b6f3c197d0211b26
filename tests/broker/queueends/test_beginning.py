"""Whether an empty log may begin where its master's does."""

from __future__ import annotations

from broker.queueends.beginning import Beginning


def asks(beginning: Beginning) -> int | None:
    return beginning.to_ask


def waits(beginning: Beginning) -> bool:
    return beginning.waits_for_disk


def of_master(offers: bool | None = True) -> Beginning:
    made = Beginning()
    made.follow("a:1")
    if offers is not None:
        assert made.offered(offers), "news"
    return made


def test_a_log_from_0_on_lacks_nothing() -> None:
    beginning = of_master(None)
    assert beginning.may(0) and asks(beginning) is None


def test_nobody_is_asked_before_a_master_says_that_it_may_be() -> None:
    beginning = of_master(None)
    assert not beginning.may(70) and asks(beginning) is None
    assert beginning.offered(True) and asks(beginning) == 70
    assert not beginning.offered(True), "no news"


def test_a_java_master_is_not_asked() -> None:
    beginning = of_master(False)
    assert beginning.may(70) and asks(beginning) is None


def test_it_may_begin_when_what_was_told_is_on_disk() -> None:
    beginning = of_master()
    assert not beginning.may(70) and asks(beginning) == 70
    beginning.told(70)
    assert not beginning.may(70) and asks(beginning) is None and waits(beginning)
    beginning.on_disk()
    assert beginning.may(70) and not waits(beginning)
    assert beginning.is_known(70) and not beginning.is_known(80)
    assert not beginning.may(80) and asks(beginning) == 80, "what was told of one place says too little of a later one"


def test_another_place_that_is_wanted_while_the_disk_is_busy_is_asked_for_then() -> None:
    beginning = of_master()
    assert not beginning.may(70)
    beginning.told(70)
    assert not beginning.may(80) and asks(beginning) is None
    beginning.on_disk()
    assert not beginning.may(80) and asks(beginning) == 80


def test_what_was_told_is_void_with_another_master_and_without_its_queues() -> None:
    beginning = of_master()
    assert not beginning.may(70)
    beginning.told(70)
    beginning.on_disk()
    beginning.follow("a:1")
    assert beginning.may(70)
    beginning.follow("b:1")
    assert not beginning.may(70) and asks(beginning) is None
    beginning.offered(True)
    beginning.told(70)
    beginning.on_disk()
    beginning.forget()
    assert not beginning.may(70) and asks(beginning) == 70
