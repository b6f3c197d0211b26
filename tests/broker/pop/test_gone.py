"""Which records that a topic or group is gone a replica has followed."""

from __future__ import annotations

from broker.pop.gone import Gone

TOPIC, GROUP = ("T", ""), ("", "G")


def test_a_record_is_followed_once_and_again_only_if_its_forgetting_was_lost() -> None:
    gone = Gone(100)
    assert not gone.hear(99, TOPIC), "a process before followed it"
    assert gone.hear(200, TOPIC) and not gone.hear(200, TOPIC)
    assert (gone.kept().log_offset, gone.needs_from(900)) == (100, 200), "the next process hears it"
    gone.saved(200)
    assert (gone.kept().log_offset, gone.needs_from(900)) == (201, 900)
    assert not Gone(gone.below).hear(200, TOPIC)


def test_what_a_master_said_itself_it_does_not_follow() -> None:
    """It has forgotten already, and what was committed since belongs to the new topic."""
    gone = Gone(0)
    gone.say(TOPIC)
    assert gone.hear(50, GROUP), "which another one said"
    assert not gone.hear(100, TOPIC)
    assert gone.kept().log_offset == 0, "that of the other one is not on disk"
    gone.saved(50)
    gone.saved(100)
    assert gone.kept().log_offset == 101
    gone.say(GROUP)
    assert not gone.hear(200, GROUP) and gone.kept().log_offset == 101, "it may be forgotten in memory alone"
    gone.saved(200)
    assert gone.kept().log_offset == 201
    assert gone.hear(300, GROUP), "said by the next master"


def test_a_record_that_is_cut_off_was_never_said() -> None:
    gone = Gone(0)
    gone.say(TOPIC)
    gone.follows()
    assert gone.hear(100, TOPIC) and gone.hear(300, GROUP)
    gone.cut(200)
    gone.saved(100)
    assert gone.kept().log_offset == 101
    gone.cut(50)
    assert gone.kept().log_offset == 50 and gone.hear(60, TOPIC)
