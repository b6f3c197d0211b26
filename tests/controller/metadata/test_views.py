"""What 1004 and 1006 answer from."""

from __future__ import annotations

from controller.metadata.views import Member, ReplicaInfo, replica_info, sync_state_data
from tests.controller.metadata.fleet import KEY, led, registered


def test_the_master_is_told_alive_or_not() -> None:
    fleet = led()
    assert replica_info(fleet.group) == ReplicaInfo(1, "10.0.0.1:10911", 1, frozenset({1, 2, 3}), 2)
    fleet.lost()
    assert replica_info(fleet.group) == ReplicaInfo(None, None, 2, frozenset({1, 2, 3}), 2)
    assert replica_info(registered(1).group) == ReplicaInfo(None, None, 0, frozenset(), 0)


def test_every_member_stands_on_its_side() -> None:
    data = sync_state_data(KEY, led(1, 3).group, {2, 3, 9})
    assert data.key == KEY and data.info.master == 1
    assert data.in_sync == (Member(1, "10.0.0.1:10911", False), Member(3, "10.0.0.3:10911", True))
    assert data.not_in_sync == (Member(2, "10.0.0.2:10911", True),)
