"""The part of delayed messages: when they are due, and how far they are delivered."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

import attrs

from broker.config import BrokerConfig, pick
from broker.part import Parts, Shared, SpecialService, Table
from broker.rules import Rule
from broker.schedule import levels
from broker.schedule.delivery import DelayedDelivery, ScheduleConfig
from broker.schedule.levels import DelayLevels
from broker.schedule.machine import VERSION_STEP
from broker.standing import Role
from broker.store.tables import DelayOffsets, load
from broker.topics.part import TopicsPart
from remoting.codes import RequestCode
from remoting.daemon.keys import key
from remoting.endpoint import Handler

if TYPE_CHECKING:
    from remoting.daemon.page import Metric, Page


@attrs.frozen(kw_only=True, slots=False)
class DelayKeys:
    """The keys of the broker's configuration that belong to it."""

    delay_offset_update_version_step: int = key(
        VERSION_STEP, "so many moves of positions move the version of delayOffset.json", least=1, most=2**31 - 1,
        live=True)


class DelaysPart(SpecialService):
    keys = DelayKeys
    tells_progress = frozenset((int(RequestCode.GET_ALL_DELAY_OFFSET),))
    follows: ClassVar[bool] = True

    def __init__(self, shared: Shared, before: Parts) -> None:
        super().__init__(shared)
        config = shared.config
        self._levels = DelayLevels(len(levels.parse(config.message_delay_level)))
        self._delivery = DelayedDelivery(
            ScheduleConfig(message_delay_level=config.message_delay_level,
                           flush_delay_offset_interval_ms=config.flush_delay_offset_interval),
            shared.journal, shared.outlet, load(shared.files, DelayOffsets), wall_ms=shared.wall_ms)
        self._file = shared.table_file(self._delivery.kept)
        self._delivery.on_change = self._file.changed
        self.saved = self._file.saved
        """Returns when the positions are on disk. Raises ``OSError``."""
        shared.journal.was_cut.join("parts", self._delivery.cut)
        self._delivery.expects = before[TopicsPart].expects

    def handlers(self) -> Mapping[int, Handler]:
        return self._delivery.handlers()

    def tables(self) -> Sequence[Table]:
        return (Table(self._file, RequestCode.GET_ALL_DELAY_OFFSET, self._delivery.copy, self._delivery.join),)

    def rules(self) -> Sequence[Rule]:
        return (self._levels.rule,)

    def runtime_info(self) -> Mapping[str, str]:
        return self._delivery.running_stats()

    def metrics(self, page: Page) -> Iterator[Metric]:
        yield page.counter("broker_delayed_delivered", "Delayed messages that came due. Ours.",
                           [((), self._delivery.delivered)])

    def delivered(self) -> Mapping[int, int]:
        """Positions by level, while this broker delivers; {} otherwise."""
        return self._delivery.offsets().offset_table if self._delivery.machine.started else {}

    def join(self, positions: Mapping[int, int]) -> None:
        """Take positions up to which a member of the group delivered."""
        self._delivery.join(DelayOffsets({**positions}).to_json())

    def configure(self, config: BrokerConfig) -> None:
        self._delivery.machine.version_step = pick(config, DelayKeys).delay_offset_update_version_step

    # --- when it delivers ------------------------------------------------------------------------------------

    def role_changed(self, role: Role) -> None:
        self._delivery.machine.state_version = role.epoch

    def writes_opened(self) -> None:
        self._delivery.fit()
        super().writes_opened()

    def begin(self) -> None:
        self._delivery.start(in_place=self._standing.role.acts)

    def end(self) -> None:
        self._delivery.stop()

    def due_ns(self) -> int:
        return self._delivery.due_ns()

    def tick(self, now_ns: int) -> None:
        self._delivery.tick(now_ns)
