"""Planted bugs of what waits in a broker until it is due."""

from __future__ import annotations

from typing import Final

from tests.harness.planting import Planted

MACHINE: Final = "broker/schedule/machine.py"
DELIVERY: Final = "broker/schedule/delivery.py"
LEVELS: Final = "broker/schedule/levels.py"

PLANTED: Final = (
    # --- delay levels
    Planted("what could not be delivered is passed over", MACHINE,
            "alone, level.together = level.together == 1 or delivery.end - delivery.begin == 1, 1\n",
            "alone, level.together, level.offset = False, 1, delivery.end\n", ("INV_B40", "INV_B36"), "delays"),
    Planted("what was put is delivered, whatever comes of it", DELIVERY,
            "        if result.status is PutStatus.PUT_OK:\n", "        if result.status is not None:\n",
            ("INV_B40", "INV_B36"), "delays"),
    Planted("a delayed message is due half a second early", MACHINE,
            "    return due_ms <= wall_ms or ", "    return due_ms <= wall_ms + 500 or ", ("INV_B37",), "delays"),
    Planted("a level is as long as the one before it", "broker/store/dispatch.py",
            "len(self._delays_ms)) - 1]", "len(self._delays_ms)) - 2]", ("INV_B37",), "delays"),
    Planted("what was delayed goes to the first queue", LEVELS,
            "topic=topic.encode(), queue_id=queue_id,", "topic=topic.encode(), queue_id=0,", ("INV_B38",), "delays"),
    Planted("a level is delivered twice at a time", MACHINE,
            "            if not level.under_way and level.look_at_ns <= now_ns:\n",
            "            if level.look_at_ns <= now_ns:\n", ("INV_B39",), "delays"),
    Planted("a new master delivers all levels from their beginning", MACHINE,
            "if level.offset is not None and level.offset > end:\n                self._move(level, end, wall_ms)\n",
            "level.offset = 0\n", ("INV_B39",), "delays"),
    Planted("a level that failed is not looked at again", MACHINE,
            "(PAUSE_AFTER_FAULT_MS if fault and alone else PAUSE_MS)",
            "(PAUSE_AFTER_FAULT_MS if fault and alone else 1 << 40)",
            ("INV_B36",), "delays"),
    Planted("one more is passed over with what was delivered", MACHINE,
            "            self._move(level, delivery.end, wall_ms)\n            level.look_at_ns = now_ns\n",
            "            self._move(level, delivery.end + 1, wall_ms)\n            level.look_at_ns = now_ns\n",
            ("INV_B40", "INV_B36"), "delays"),
)
