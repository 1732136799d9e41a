"""How long things have waited, while the clocks of the computers disagree and are set."""

from msgspec.structs import replace

from exo.broker.memory import MemoryBus
from exo.services.clock import FakeClock
from exo.services.master.waiting import QueueClock, TaskAges
from exo.streams import events as e
from exo.streams.ids import TaskId
from exo.streams.layout import COMMANDS
from support.services import fold, make_task, ready_state

SUBJECT = "exo.commands.task.cancel"
SUSPECT = 30.0


class Queue:
    """A queue whose broker has a time of day of its own."""

    def __init__(self) -> None:
        self.bus = MemoryBus()
        self.clock = FakeClock()
        self.watch = QueueClock(self.bus, clock=self.clock)

    async def store(self) -> None:
        await self.bus.append(SUBJECT, b"{}")

    async def age(self) -> int:
        message = await self.bus.get_last(COMMANDS.name, SUBJECT)
        assert message is not None
        return round(await self.watch.age(message, suspect=SUSPECT))

    async def pass_time(self, seconds: float) -> None:
        self.bus.server.advance(seconds)
        await self.clock.advance(seconds)


async def test_a_command_is_as_old_as_its_broker_says() -> None:
    queue = Queue()
    await queue.store()
    assert await queue.age() == 0
    await queue.pass_time(12)
    assert await queue.age() == 12
    await queue.pass_time(40)
    assert await queue.age() == 52


async def test_a_command_that_lay_before_this_master_ruled_is_old() -> None:
    queue = Queue()
    await queue.store()
    queue.bus.server.advance(40)
    assert await queue.age() == 40


async def test_setting_the_brokers_clock_ages_nothing() -> None:
    queue = Queue()
    for seconds in (3600, -7200, 3600):
        await queue.store()
        assert await queue.age() == 0
        queue.bus.server.advance(seconds)
        await queue.store()
        assert await queue.age() == 0


async def test_requests_age_from_when_this_master_knows_them() -> None:
    clock = FakeClock()
    ages = TaskAges(clock=clock)
    limited = make_task(time_limit=1000, assigned_at=1)
    state = ready_state(tasks=(limited, make_task("task-2")))
    assert ages.look(state) == {limited.id: 0}
    await clock.advance(3)
    assert ages.look(state) == {limited.id: 3}
    again = fold(state, e.TaskAssigned(task=replace(limited, attempt=2)))
    assert ages.look(again) == {limited.id: 0}
    assert ages.look(fold(again, e.TaskCancelled(task=TaskId("task-1"), reason=""))) == {}
