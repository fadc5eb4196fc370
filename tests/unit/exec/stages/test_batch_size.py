"""Batch sizes of scans follow the time of the last batch, so that other operations never wait long."""

import pytest

from mongottl.clock import Clock, SystemClock
from mongottl.config import ServerConfig
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.running.client import ClientInfo
from mongottl.exec.service.service import ServiceContext
from mongottl.exec.stages.stage import BATCH, FIRST_BATCH, next_batch_size
from mongottl.storage.opening import open_engine
from tests.steps import begin


class SteppedClock(Clock):
    """Monotonic time that only the test moves."""

    def __init__(self) -> None:
        self.elapsed_s = 0.0

    def now_ms(self) -> int:
        return SystemClock().now_ms()

    def monotonic_s(self) -> float:
        return self.elapsed_s


def test_batches_double_while_quick_and_halve_while_slow() -> None:
    clock = SteppedClock()
    service = ServiceContext(ServerConfig(), clock, open_engine("sqlite:"))
    op = OperationContext(service, ClientInfo(1, "", ""), "db")
    size = FIRST_BATCH
    sizes = []
    for took_s in (0.0, 0.0, 0.0, 0.0, 0.0, 0.05, 0.05, 0.05, 0.05, 0.05, 0.05, 0.0):
        started_s = clock.elapsed_s
        clock.elapsed_s += took_s
        size = next_batch_size(op, size, started_s)
        sizes.append(size)
    assert sizes == [32, 64, 128, 256, 256, 128, 64, 32, 16, 16, 16, 32]
    assert max(sizes) == BATCH
    assert min(sizes) == FIRST_BATCH


def test_the_time_of_the_store_is_not_counted() -> None:
    clock = SteppedClock()
    service = ServiceContext(ServerConfig(), clock, open_engine("sqlite:"))
    op = OperationContext(service, ClientInfo(1, "", ""), "db")

    def read() -> list[int]:
        stack = service.stacks.present
        assert stack is not None
        sizes = [FIRST_BATCH]
        for works_s in (0.0, 0.001, 0.003):
            started_s = clock.elapsed_s
            stack.leave_for_storage(None)
            clock.elapsed_s += works_s
            sizes.append(next_batch_size(op, sizes[-1], started_s))
        return sizes

    steps = begin(service, read)
    with pytest.raises(StopIteration) as ended:
        while True:
            next(steps)
            clock.elapsed_s += 0.05
    assert ended.value.value == [16, 32, 64, 32]
