"""The picture of a cluster: every fact of a sight is in it, and what is not known is left empty."""

from __future__ import annotations

from mqcluster.gaps import Gaps
from mqcluster.picture import lines
from mqcluster.watching import BrokerSight, GroupSight, Sight

A = GroupSight("c", "broker-a", "h:1", 7, (
    BrokerSight("h:1", 1, 5_000_000, 1_234.5, True), BrokerSight("h:2", 2, 1_000_000, 0.0, False),
    BrokerSight("h:3", 3, None, None, True)))
PLAIN = GroupSight("c", "broker-b", None, None, (BrokerSight("h:9", 1, 7, 0.0, None),))
SIGHT = Sight(["n:1"], {"k:1": "k:2", "k:2": "k:2", "k:3": None}, "k:2", (A, PLAIN))


def test_it_shows_who_leads_who_is_in_sync_and_who_is_behind() -> None:
    gaps = {"broker-a": Gaps(), "broker-b": Gaps()}
    for now_s, master in ((1.0, "h:1"), (2.0, None), (3.0, "h:1")):
        gaps["broker-a"].note(now_s, master)
        gaps["broker-b"].note(now_s, None)
    assert lines(SIGHT, gaps) == [
        "name servers  n:1",
        "controllers   k:1 follower  k:2 active  k:3 silent",
        "",
        "group             broker                   id  role      epoch  in sync        lag    puts/s",
        "broker-a          h:1                       1  master        7  yes                    1,234",
        "                  h:2                       2  slave            no         3.8 MiB",
        "                  h:3                       3  silent           yes",
        "broker-b          h:9                       1  slave",
        "",
        "without a master that answers (a bar for each look; █ is 10 s or more)",
        "broker-a          ▁▅▆  the last one took 2.0 s at most",
        "broker-b          ▂▅▆  for 2.0 s now"]


def test_a_single_look_has_no_gaps_and_a_name_server_that_is_silent_is_said() -> None:
    assert "without a master" not in "\n".join(lines(SIGHT, {}))
    assert lines(Sight(["n:1"], {}, None, (), "cannot connect"), {}) == [
        "name servers  n:1", "nothing is seen: cannot connect"]


def test_colours_change_nothing_else() -> None:
    plain, painted = lines(SIGHT, {}), lines(SIGHT, {}, colour=True)
    for code in ("\x1b[1;32m", "\x1b[31m", "\x1b[0m"):
        assert any(code in line for line in painted)
        painted = [line.replace(code, "") for line in painted]
    assert painted == plain


def test_a_group_answers_if_its_master_does() -> None:
    assert (A.answers, PLAIN.answers, SIGHT.well) == (True, False, False)
    assert [A.lag_bytes(each) for each in A.brokers] == [0, 4_000_000, None]
    told = SIGHT.to_plain()
    assert told["groups"][0]["brokers"][1] == {
        "address": "h:2", "brokerId": 2, "logEnd": 1_000_000, "lagBytes": 4_000_000, "inSync": False,
        "putsPerSecond": 0.0}
    assert told["controllers"][2] == {"address": "k:3", "answers": False, "active": None}
