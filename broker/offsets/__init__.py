"""The position of each consumer group in each queue: how it is asked for, moved and kept. It knows numbers alone."""

from broker.offsets.table import OffsetsConfig, OffsetTable

__all__ = ["OffsetTable", "OffsetsConfig"]
