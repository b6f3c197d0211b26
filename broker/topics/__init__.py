"""The topics of one broker: which there are, how they come to be, and what administrators do with them."""

from broker.topics.table import TopicsConfig, TopicTable

__all__ = ["TopicTable", "TopicsConfig"]
