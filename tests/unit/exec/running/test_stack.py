"""Operations that are left, and gone on with later."""

import gc
import itertools
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pytest

from mongottl.document.freeing import LongList, free_some
from mongottl.document.interrupt import (
    CHECK_EVERY_S,
    LOOKED_WORK,
    Undivided,
    UndividedGuard,
    begin_evaluation,
    end_evaluation,
    give_way,
    run_aside,
    set_run_aside,
    set_undivided_guard,
)
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.running.operation_scripts import OperationScripts
from mongottl.exec.running.stack import LEFT_AFTER_S, TOGETHER_S, NeedsStack, Stacks, Steps, StepTimes
from mongottl.exec.running.steps import InThread, Wait, WithoutWriters
from mongottl.exec.service.service import ServiceContext
from tests.running import Running, new_operation

T = TypeVar("T")


class Elapsed:
    """A monotonic clock that stands still until a test moves it."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def read(self) -> float:
        return self.now_s


def registered(op: OperationContext) -> int:
    return len(op.service.operations.all())


@pytest.fixture
def clock() -> Elapsed:
    return Elapsed()


@pytest.fixture
def stacks(clock: Elapsed) -> Stacks:
    while free_some():
        pass  # what tests before have let go would be freed by the first operation
    return Stacks(clock.read, StepTimes(together_s=0.0))


def begun(stacks: Stacks, function: Callable[[], T]) -> Steps[T]:
    outcome = stacks.begin(function)
    assert isinstance(outcome, Steps)
    return outcome


def ended(steps: Steps[T]) -> T:
    """The result of an operation that is not left any more."""
    with pytest.raises(StopIteration) as stop:
        next(steps)
    assert list(steps) == []
    result: T = stop.value.value
    return result


def test_begin_returns_the_result_of_an_operation_that_is_not_left(stacks: Stacks) -> None:
    assert stacks.begin(lambda: ("a", "result")) == ("a", "result")
    with pytest.raises(KeyError):
        stacks.begin(lambda: {"a": 1}["x"])
    assert stacks.present is None


def test_why_it_is_left(stacks: Stacks) -> None:
    done: list[str] = []

    def run() -> str:
        done.append("a")
        stacks.wait(Wait(0.5))
        done.append("b")
        stacks.give_way()
        done.append("c")
        return "end"

    steps = begun(stacks, run)
    assert done == ["a"]
    step = next(steps)
    assert isinstance(step, Wait)
    assert step.seconds == 0.5
    assert done == ["a"]
    assert next(steps) is None
    assert done == ["a", "b"]
    assert stacks.present is None
    assert ended(steps) == "end"
    assert done == ["a", "b", "c"]


def test_short_steps_follow_one_another(clock: Elapsed) -> None:
    stacks = Stacks(clock.read, StepTimes())
    taken: list[float] = []

    def run() -> None:
        for _ in range(4):
            clock.now_s += TOGETHER_S / 2
            stack = stacks.present
            assert stack is not None
            taken.append(stack.end_step())
            if stack.is_over:
                stack.leave(None)

    steps = begun(stacks, run)
    assert len(taken) in (2, 3)
    for _ in steps:
        pass
    assert taken == pytest.approx([TOGETHER_S / 2] * 4)


def test_outside_of_an_operation_nothing_is_left(stacks: Stacks) -> None:
    stacks.give_way()
    stacks.wait(Wait(1e9))
    stacks.flush()
    assert stacks.in_thread(lambda: 5) == 5
    assert stacks.compute(lambda: 6) == 6
    stacks.carry(new_operation())
    stacks.check_present()


def test_in_thread_returns_results_and_raises_errors(stacks: Stacks) -> None:
    def run() -> list[int]:
        with pytest.raises(ZeroDivisionError):
            stacks.in_thread(lambda: 1 // 0)
        return [stacks.in_thread(lambda: 5), stacks.in_thread(lambda: 6, without_writers=True)]

    steps = begun(stacks, run)
    kinds: list[type] = []
    result: list[int] = []
    while not result:
        try:
            step = next(steps)
        except StopIteration as stop:
            result = stop.value
        else:
            assert isinstance(step, InThread)
            kinds.append(type(step))
            step.run()
    assert result == [5, 6]
    assert kinds == [InThread, InThread, WithoutWriters]


def test_an_evaluation_runs_aside_what_takes_long(stacks: Stacks) -> None:
    """Nobody else runs meanwhile where nobody may: outside of evaluations, and in undivided blocks."""
    set_run_aside(stacks.run_aside)
    try:
        op = new_operation()

        def computed() -> int:
            with Undivided():
                assert run_aside(lambda: 1) == 1
            return run_aside(lambda: 2)

        def operation() -> tuple[int, int, bool]:
            stacks.carry(op)
            return run_aside(lambda: 3), stacks.compute(computed), op.was_left

        steps = begun(stacks, operation)
        step = next(steps)
        assert isinstance(step, InThread)
        step.run()
        assert ended(steps) == (3, 2, True)

        steps = begun(stacks, operation)
        next(steps)
        op.kill("by others")
        with pytest.raises(CommandError, match="by others"):
            next(steps)
    finally:
        set_run_aside(None)


def test_two_operations_side_by_side(stacks: Stacks) -> None:
    order: list[str] = []

    def run(name: str) -> None:
        for i in range(3):
            order.append(f"{name}{i}")
            stacks.give_way()

    running = [begun(stacks, lambda: run("a")), begun(stacks, lambda: run("b"))]
    for _ in range(3):
        for steps in running:
            next(steps)
    assert order == ["a0", "b0", "a1", "b1", "a2", "b2"]
    for steps in running:
        ended(steps)


def test_one_operation_is_gone_on_with_within_another(stacks: Stacks) -> None:
    order: list[str] = []

    def run_inner() -> str:
        order.append("inner begins")
        stacks.give_way()
        order.append("inner ends")
        return "inner"

    waiting = begun(stacks, run_inner)
    assert next(waiting) is None

    def run_outer() -> str:
        order.append(ended(waiting))
        stacks.give_way()
        return "outer"

    steps = begun(stacks, run_outer)
    assert next(steps) is None
    assert ended(steps) == "outer"
    assert order == ["inner begins", "inner ends", "inner"]


def test_an_error_is_thrown_where_it_was_left(stacks: Stacks) -> None:
    def run() -> None:
        try:
            stacks.flush()
        except KeyError:
            stacks.wait(Wait(1.0))
            raise ValueError("of the operation") from None

    steps = begun(stacks, run)
    next(steps)
    assert isinstance(steps.throw(KeyError("x")), Wait)
    with pytest.raises(ValueError, match="of the operation"):
        next(steps)
    assert list(steps) == []


def test_an_operation_that_is_given_up(stacks: Stacks) -> None:
    done: list[str] = []

    def run() -> None:
        try:
            stacks.give_way()
            done.append("went on")
        except Exception:
            done.append("caught")
        finally:
            stacks.give_way()
            done.append(str(stacks.in_thread(lambda: "cleaned up")))
            stacks.wait(Wait(1e9))
            done.append("waited")

    steps = begun(stacks, run)
    steps.close()
    steps.close()
    assert done == ["cleaned up"]
    assert list(steps) == []
    assert stacks.begin(lambda: "the stack is used again") == "the stack is used again"


def test_an_error_in_the_end_of_one_that_is_given_up(stacks: Stacks) -> None:
    def run() -> None:
        try:
            stacks.give_way()
        finally:
            raise ValueError("of the end")

    with pytest.raises(ValueError, match="of the end"):
        begun(stacks, run).close()


def test_stop_iteration_in_an_operation_raises_runtime_error(stacks: Stacks) -> None:
    def run() -> str:
        stacks.give_way()
        return next(iter(()))

    steps = begun(stacks, run)
    next(steps)
    with pytest.raises(RuntimeError):
        next(steps)


def test_new_objects_are_examined_while_an_operation_goes_on(clock: Elapsed, stacks: Stacks) -> None:
    """About as often as one that takes long is left, however short its steps are."""
    examined: list[float] = []
    stacks.examine_new = lambda: examined.append(clock.now_s)

    def run() -> None:
        for _ in range(30):
            clock.now_s += LEFT_AFTER_S / 4
            stacks.give_way()

    for _ in begun(stacks, run):
        pass
    assert len(examined) in (7, 8)
    assert min(after - before for before, after in itertools.pairwise(examined)) >= LEFT_AFTER_S * 0.99


def test_a_server_is_freed_with_the_stacks_that_it_has_used() -> None:
    """What a greenlet holds that is left is not seen by the garbage collector."""

    def services() -> int:
        gc.collect()
        return sum(isinstance(one, ServiceContext) for one in gc.get_objects())

    before = services()
    running = Running()
    running.service.stacks.check = running.service.stacks.check_present
    running.insert({"_id": 1}, {"_id": 2})
    assert running.listed({"find": "c", "batchSize": 1}) == [{"_id": 1}, {"_id": 2}]
    running.steps({"find": "c"}).close()
    assert services() == before + 1
    running.engine.close()
    del running
    assert services() == before


def test_a_host_is_not_left_to_free_what_its_operations_have_let_go(stacks: Stacks) -> None:
    """The steps that it returns are those of an operation, which its caller goes on with."""
    replies: list[int] = []

    def answer(first: int, second: int) -> int:
        LongList([bytes(1) for _ in range(300_000)])
        return first + second

    def host() -> None:
        for number in range(3):
            reply = stacks.call(answer, number, 1)
            assert isinstance(reply, int)
            replies.append(reply)

    assert stacks.host(host) is None
    assert replies == [1, 2, 3]
    while free_some():
        pass


def test_stacks_are_used_again(stacks: Stacks) -> None:
    used: set[int] = set()

    def run() -> None:
        used.add(id(stacks.present))
        stacks.give_way()

    for _ in range(5):
        ended_steps = begun(stacks, run)
        for _step in ended_steps:
            pass
    assert len(used) == 1


def test_operation_is_registered_when_it_is_left_first(stacks: Stacks) -> None:
    operation = new_operation()

    def run() -> None:
        stacks.carry(operation)
        assert registered(operation) == 0
        stacks.give_way()
        stacks.give_way()

    steps = begun(stacks, run)
    assert registered(operation) == 1
    for _ in steps:
        pass
    assert registered(operation) == 1
    assert not operation.was_left  # it was left between two steps


class PausingGuard(UndividedGuard):
    """Of an engine that reads what others have changed, and pauses meanwhile."""

    def __init__(self, pause: Callable[[], None]) -> None:
        self._pause = pause

    def begin(self) -> None:
        self._pause()

    def end(self) -> None:
        """Nothing is to be given up."""


def test_an_evaluation_is_left_after_clients_were_answered_within_it(clock: Elapsed, stacks: Stacks) -> None:
    answered: list[bool] = []
    stacks.answer_apart = lambda: answered.append(True)
    set_undivided_guard(PausingGuard(stacks.pause))
    op = new_operation()

    def work() -> None:
        stacks.carry(op)
        stacks.compute(fill)

    def fill() -> None:
        clock.now_s += 1
        with Undivided():
            pass
        clock.now_s += 1
        give_way(LOOKED_WORK)

    try:
        assert len(list(begun(stacks, work))) == 1
    finally:
        set_undivided_guard(None)
    assert answered == [True]


def test_a_unit_of_work_is_never_left(stacks: Stacks) -> None:
    def run() -> None:
        with Undivided():
            stacks.give_way()

    with pytest.raises(AssertionError):
        stacks.begin(run)


class TestHosting:
    """One stack answers many operations, until one is left."""

    def test_operations_that_are_not_left(self, stacks: Stacks) -> None:
        answered: list[object] = []
        used: set[int] = set()

        def add(first: int, second: int) -> int:
            used.add(id(stacks.present))
            return first + second

        def fail(first: int, second: int) -> int:
            raise KeyError(first)

        def answer() -> None:
            for number in range(3):
                answered.append(stacks.call(add, number, 1))
            with pytest.raises(KeyError):
                stacks.call(fail, 1, 2)
            answered.append("end")

        assert stacks.host(answer) is None
        assert answered == [1, 2, 3, "end"]
        assert len(used) == 1
        assert stacks.call(add, 1, 1) == 2  # nothing hosts it

    def test_one_that_is_left_keeps_the_stack(self, stacks: Stacks) -> None:
        events = ["a", "waits", "b"]
        answered: list[object] = []
        operations: list[OperationContext] = []

        def run(name: str, waits: bool) -> str:
            op = new_operation()
            operations.append(op)
            stacks.carry(op)
            if waits:
                stacks.wait(Wait(0.5))
            return name

        def answer() -> None:
            while events:
                name = events.pop(0)
                answered.append(stacks.call(run, name, name == "waits"))

        steps = stacks.host(answer)
        assert steps is not None
        assert answered == ["a"]
        assert [registered(op) for op in operations] == [0, 1]
        assert stacks.host(answer) is None
        assert answered == ["a", "b"]
        step = next(steps)
        assert isinstance(step, Wait)
        assert ended(steps) == "waits"
        assert answered == ["a", "b"]  # it is answered by who has the steps

    @pytest.mark.parametrize("given_up", [False, True])
    def test_one_that_is_left_and_fails(self, stacks: Stacks, given_up: bool) -> None:
        cleaned: list[bool] = []

        def run(first: int, second: int) -> None:
            try:
                stacks.give_way()
                raise KeyError(first)
            finally:
                cleaned.append(True)

        def answer() -> None:
            stacks.call(run, 1, 2)

        steps = stacks.host(answer)
        assert steps is not None
        next(steps)
        if given_up:
            steps.close()
        else:
            with pytest.raises(KeyError):
                next(steps)
        assert cleaned == [True]
        assert stacks.begin(lambda: "the stack is used again") == "the stack is used again"

    def test_a_host_that_fails(self, stacks: Stacks) -> None:
        def answer() -> None:
            raise ValueError("of the host")

        with pytest.raises(ValueError, match="of the host"):
            stacks.host(answer)


class TestEvaluations:
    """They are left when their operation has gone on long; nothing else is left in its middle."""

    def test_only_when_it_is_due(self, clock: Elapsed, stacks: Stacks) -> None:
        operation = new_operation()
        left: list[bool] = []

        def evaluate() -> None:
            stacks.check_present()
            left.append(operation.was_left)
            clock.now_s += LEFT_AFTER_S
            stacks.check_present()
            left.append(operation.was_left)

        def run() -> str:
            stacks.carry(operation)
            stacks.compute(evaluate)
            return "end"

        steps = begun(stacks, run)
        assert left == [False]
        assert not end_evaluation()  # what others do meanwhile is no evaluation
        assert next(steps) is None
        assert ended(steps) == "end"
        assert left == [False, True]

    def test_check_present_outside_an_evaluation_does_not_suspend(self, clock: Elapsed, stacks: Stacks) -> None:
        def run() -> str:
            stacks.carry(new_operation())
            clock.now_s += 1.0
            stacks.check_present()
            return "at once"

        assert stacks.begin(run) == "at once"

    @pytest.mark.parametrize("in_transaction", [False, True])
    def test_an_answered_operation_is_left_but_not_ended(
        self, clock: Elapsed, stacks: Stacks, in_transaction: bool
    ) -> None:
        operation = new_operation(in_transaction=in_transaction)

        def evaluate() -> str:
            clock.now_s += 1.0
            stacks.check_present()
            return "end"

        def run() -> str:
            stacks.carry(operation)
            operation.is_answered = True
            return stacks.compute(evaluate)

        steps = begun(stacks, run)
        operation.kill()
        assert next(steps) is None
        assert ended(steps) == "end"

    def test_a_request_is_read_before_its_operation_is_known(self, clock: Elapsed, stacks: Stacks) -> None:
        def read() -> str:
            clock.now_s += 1.0
            stacks.check_present()
            return "request"

        steps = begun(stacks, lambda: stacks.compute_unknown(read))
        assert next(steps) is None
        assert ended(steps) == "request"
        assert stacks.compute_unknown(read) == "request"  # without a stack

    def test_evaluation_of_a_killed_operation_is_interrupted(self, stacks: Stacks) -> None:
        operation = new_operation()

        def run() -> None:
            stacks.carry(operation)
            operation.kill()
            stacks.compute(stacks.check_present)

        with pytest.raises(CommandError) as ended:
            stacks.begin(run)
        assert ended.value.code == ErrorCode.Interrupted

    def test_computation_checks_its_inputs_after_each_suspension(self, stacks: Stacks) -> None:
        changed: list[str] = []

        def compute() -> str:
            stacks.give_way()
            return "computed"

        def check() -> None:
            if changed:
                raise KeyError(changed[0])

        def run() -> str:
            found = stacks.compute(compute, check)
            with pytest.raises(KeyError):
                stacks.compute(compute, check)
            stacks.give_way()  # no computation any more
            return found

        steps = begun(stacks, run)
        next(steps)
        next(steps)
        changed.append("x")
        next(steps)
        assert ended(steps) == "computed"


class TestAttempts:
    """Short writes, which are carried out without a stack as long as they do not need one."""

    def test_result_and_error(self, stacks: Stacks) -> None:
        assert stacks.attempt(divmod, 7, 2) == (3, 1)
        with pytest.raises(ZeroDivisionError):
            stacks.attempt(divmod, 7, 0)
        stacks.require()  # there is no attempt any more

    @pytest.mark.parametrize(
        "needs_stack",
        [
            lambda stacks: stacks.wait(Wait(1.0)),
            lambda stacks: stacks.flush(),
            lambda stacks: stacks.in_thread(lambda: None),
            lambda stacks: stacks.require(),
        ],
        ids=["wait", "flush", "in_thread", "require"],
    )
    def test_one_that_must_wait_is_given_up_unless_it_has_committed(
        self, stacks: Stacks, needs_stack: Callable[[Stacks], None]
    ) -> None:
        ended = []

        def write(commits: bool, name: str) -> str:
            try:
                if commits:
                    stacks.end_attempt()
                needs_stack(stacks)
            except Exception:
                ended.append("an error")  # it is none
            ended.append(name)
            return name

        with pytest.raises(NeedsStack):
            stacks.attempt(write, False, "given up")
        assert stacks.attempt(write, True, "committed") == "committed"
        assert ended == ["committed"]
        needs_stack(stacks)

    def test_one_that_evaluates_for_long_is_given_up_unless_it_has_committed(
        self, clock: Elapsed, stacks: Stacks
    ) -> None:
        def write(commits: bool, seconds: float) -> str:
            if commits:
                stacks.end_attempt()
            begun = begin_evaluation()
            try:
                clock.now_s += seconds
                for _ in range(2 * LOOKED_WORK):
                    give_way()
                return "done"
            finally:
                if begun:
                    end_evaluation()

        assert stacks.attempt(write, False, CHECK_EVERY_S / 2) == "done"
        with pytest.raises(NeedsStack):
            stacks.attempt(write, False, 2 * CHECK_EVERY_S)
        assert stacks.attempt(write, True, 2 * CHECK_EVERY_S) == "done"
        assert not begin_evaluation()  # no check is left behind


def test_scripts_let_others_run(stacks: Stacks) -> None:
    released: list[bool] = []

    class FakeScripts:
        """What OperationScripts needs of the scripts: their release."""

        def release(self) -> None:
            released.append(True)

    scripts: Any = FakeScripts()
    paused = OperationScripts(stacks, lambda pause, await_turn: scripts)
    assert not paused.pause(0.5, -1, False)
    operation = new_operation()

    def run() -> bool:
        stacks.carry(operation)
        return paused.pause(0.5, -1, False)

    steps = begun(stacks, run)
    step = next(steps)
    assert isinstance(step, Wait)
    assert step.seconds == 0.5
    assert operation.was_left
    assert ended(steps)
    paused.end()
    assert released == [True]


class TestFreeing:
    """An operation has ended when what it has let go is freed."""

    def test_others_run_meanwhile(self, stacks: Stacks) -> None:
        def operation() -> int:
            return len(LongList([index] for index in range(50_000)))

        steps = begun(stacks, operation)
        taken = [*steps_taken(steps)]
        assert taken[-1] == 50_000
        assert len(taken) > 10

    def test_the_operation_is_not_registered_then(self, stacks: Stacks) -> None:
        op = new_operation()

        def operation() -> None:
            stacks.carry(op)
            LongList([index] for index in range(50_000))

        steps = begun(stacks, operation)
        next(steps)
        assert registered(op) == 0
        steps.close()

    def test_one_that_is_given_up_leaves_it_to_the_next(self, stacks: Stacks) -> None:
        steps = begun(stacks, lambda: len(LongList([index] for index in range(50_000))))
        steps.close()
        assert [*steps_taken(begun(stacks, lambda: 5))][-1] == 5
        assert not free_some()


def steps_taken(steps: Steps[T]) -> Iterator[object]:
    """Its steps, and its result."""
    while True:
        try:
            yield next(steps)
        except StopIteration as stop:
            yield stop.value
            return
