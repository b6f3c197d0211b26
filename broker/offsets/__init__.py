"""How far each consumer group is in each queue; how that is asked for, moved and kept. It knows numbers, no message."""

from broker.offsets.table import OffsetsConfig, OffsetTable

__all__ = ["OffsetTable", "OffsetsConfig"]
