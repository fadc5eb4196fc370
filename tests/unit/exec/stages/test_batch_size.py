"""Batch sizes of scans follow the time of the last batch, so that other operations never wait long."""

from mongottl.clock import Clock, SystemClock
from mongottl.config import ServerConfig
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.running.client import ClientInfo
from mongottl.exec.service.service import ServiceContext
from mongottl.exec.stages.stage import BATCH, FIRST_BATCH, next_batch_size
from mongottl.storage.opening import open_engine


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
