"""Headers of the codes that manage a broker's topics: 17, 351, 21. 18 and 305 have none, 215 only the topic.

Field names are those of the Java header classes.
"""

from __future__ import annotations

from remoting.header import Header, Int32, header


@header
class CreateTopicRequest(Header):
    """17, ``CreateTopicRequestHeader``. ``attributes`` is ``+key=value,-key``."""

    topic: str
    read_queue_nums: Int32
    write_queue_nums: Int32
    perm: Int32
    default_topic: str = ""
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: Int32 | None = None
    order: bool = False
    attributes: str | None = None
    force: bool | None = None


@header
class GetTopicConfigRequest(Header):
    """351, ``GetTopicConfigRequestHeader``. ``lo`` asks for static queues as well."""

    topic: str
    lo: bool | None = None


@header
class GetAllTopicConfigRequest(Header):
    """21, ``GetAllTopicConfigRequestHeader`` of 5.5.0; brokers before it send none of this and want everything.

    ``data_version`` is the JSON of the version that the pages before this one had.
    """

    topic_seq: Int32 | None = None
    data_version: str | None = None
    max_topic_num: Int32 | None = None


@header
class GetAllTopicConfigResponse(Header):
    total_topic_num: Int32 | None = None
