"""Bodies of the codes that manage topics. 21's answer is with the name server's, 351's is ``TopicConfig``."""

from __future__ import annotations

import attrs

from remoting.bodies.namesrv import TopicConfig
from remoting.body import Body, body


@body
class CreateTopicListRequestBody(Body):
    """18. The attributes of each are changes: keys with ``+`` or ``-`` in front."""

    topic_config_list: list[TopicConfig] = attrs.field(factory=list)
