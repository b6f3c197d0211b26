"""The keys of POP. They are values: a live key comes as another configuration."""

from __future__ import annotations

import attrs

from remoting.daemon.keys import key

_INT_MAX = 2**31 - 1


@attrs.frozen(kw_only=True)
class PopKeys:
    """The broker's configuration keys that belong to POP."""

    pop_from_retry_probability: int = key(
        20, "percent of POPs that look at what comes back first", least=0, most=100, live=True)
    pop_from_retry_probability_for_priority: int = key(
        0, "the same, of topics whose message.type is PRIORITY", least=0, most=100, live=True)
    priority_order_asc: bool = key(
        True, "POPs look at queues from the last to the first, so the last ones go first; false: the other way round",
        live=True)
    enable_retry_topic_v2: bool = key(
        False, "what comes back goes to %RETRY%group+topic, not to %RETRY%group_topic", live=True)
    retrieve_message_from_pop_retry_topic_v1: bool = key(
        True, "with enableRetryTopicV2, POPs look at %RETRY%group_topic, too", live=True)
    init_pop_offset_by_check_msg_in_mem: bool = key(
        True, "a new group that asks for the last message gets all of a queue whose first one is in memory", live=True)
    pop_polling_size: int = key(1_024, "POPs that may wait for one queue of a topic and group", least=1, most=_INT_MAX,
                                live=True)
    max_pop_polling_size: int = key(100_000, "POPs that may wait in all", least=1, most=_INT_MAX, live=True)
    use_message_filter_for_notification: bool = key(
        True, "who asks whether there is a message is told of those alone that its filter wants", live=True)
    max_message_filter_num_for_notification: int = key(
        64, "where a queue has so many messages left, their tags are not looked at for that", least=0, most=_INT_MAX,
        live=True)


@attrs.frozen(kw_only=True)
class ReviveKeys:
    """The broker's configuration keys that belong to reviving."""

    revive_interval: int = key(
        1_000, "between two looks for popped messages that are to come back", least=1, most=_INT_MAX, live=True)
    skip_when_ck_re_put_reach_max_times: bool = key(
        False, "give a popped message up that could not be read 17 times, half a day; else it is tried for ever",
        name="skipWhenCKRePutReachMaxTimes", live=True)


@attrs.frozen(kw_only=True)
class ReviveConfig:
    """The keys of reviving, and others that it reads."""

    revive_interval: int = 1_000
    skip_when_ck_re_put_reach_max_times: bool = False
    enable_retry_topic_v2: bool = False
    revive_queue_num: int = 8
    timer_max_delay_sec: int = 259_200
