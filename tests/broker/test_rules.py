"""A chain of rules: who sees a draft, who ends the chain, and what a diversion keeps."""

from __future__ import annotations

import pytest

from broker.rules import NOT_YET, Chain, Diverted, Draft, Refusal, Verdict, rule

SEEN: list[str] = []


def tags(draft: Draft) -> None:
    """It notes that it was there."""
    SEEN.append("tags")
    draft.properties["TAGS"] = "seen"


def says(verdict: Verdict) -> Chain:
    """``tags``, one rule that says this, and ``tags`` again."""
    SEEN.clear()
    return Chain(rule(tags), rule(lambda draft: verdict), rule(tags))


def test_each_rule_sees_the_draft_in_order() -> None:
    draft = Draft("Orders", 3, {})
    assert says(None).stops(draft) is None
    assert SEEN == ["tags", "tags"]
    assert (draft.topic, draft.queue_id, draft.properties) == ("Orders", 3, {"TAGS": "seen"})


@pytest.mark.parametrize("verdict", [Refusal(13, "no"), NOT_YET])
def test_who_is_refused_or_has_to_wait_is_seen_by_no_further_rule(verdict: Verdict) -> None:
    draft = Draft("Orders", 3, {})
    assert says(verdict).stops(draft) == verdict
    assert SEEN == ["tags"] and (draft.topic, draft.queue_id) == ("Orders", 3)


def test_a_diversion_keeps_where_the_message_is_meant_for_and_ends_the_chain() -> None:
    draft = Draft("Orders", 3, {"KEYS": "k"})
    assert says(Diverted("Elsewhere", 7)).stops(draft) is None
    assert SEEN == ["tags"], "there is room for one diversion"
    assert (draft.topic, draft.queue_id) == ("Elsewhere", 7)
    assert draft.properties == {"KEYS": "k", "TAGS": "seen", "REAL_TOPIC": "Orders", "REAL_QID": "3"}


def test_what_a_sender_claims_of_a_diversion_is_overwritten() -> None:
    draft = Draft("Orders", 3, {"REAL_TOPIC": "SCHEDULE_TOPIC_XXXX", "REAL_QID": "99"})
    says(Diverted("Elsewhere", 7)).stops(draft)
    assert (draft.properties["REAL_TOPIC"], draft.properties["REAL_QID"]) == ("Orders", "3")


def test_a_message_comes_before_the_rules_if_one_of_them_looks_at_a_property_of_it() -> None:
    assert Chain(rule(tags, "A", "B"), rule(tags), rule(tags, "C")).looked_at == {"A", "B", "C"}
    assert Chain().looked_at == set()


def test_a_rule_has_a_name_and_says_what_it_does() -> None:
    assert (rule(tags).name, rule(tags).about) == ("tags", "It notes that it was there.")
