"""The stacks of calls on which operations run, so that others run in the middle of one.

An operation is a plain function. Anywhere, however deep, it can be left and gone on with later, since it runs in a
greenlet:

    server's thread   ── begin ─┐              ┌─ other operations ─┐              ┌─ …
    greenlet                    └─ … give_way ─┘                    └─ … wait … ───┘

It is left in three ways. Between two steps of its work, by `give_way` and `wait`, any state may change: collections are
dropped, documents expire, the clock moves. And in the middle of an evaluation that takes long (`document.interrupt`):
of an expression, of a filter, of a request that is parsed. What was read before it may have changed then as well, so
that stages read a batch of records first and then test them, writes fail with a WriteConflict, and are repeated, if a
record is no longer what it was when its filter was evaluated, and planning is checked (`plan.planner.make_plan`).
Calls of an engine that waits for its answer are a third one. An open unit of work is never left. What may be
interleaved, and what follows from it: `docs/architecture.md`.

Who runs operations is given the `Steps` of one that was left, does what it waits for, and goes on with it (`Stacks`).
Most commands are short and are never left, and entering a greenlet takes as long as a tenth of one. So one stack can
answer many of them, one after another, until one is left, which then keeps the stack (`Stacks.host`).

Outside of any stack, as at the start and in tests, `give_way` and the waits return at once. A short write is attempted
there (`Stacks.attempt`): if it must wait after all, or takes long, it is given up before it has changed anything, and
begins again on a stack.

    attempt ── commit ─► result                                  most of them: no stack is entered
        └── must wait, or evaluates for a millisecond ─► NeedsStack ─► begin
"""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final, Generic, TypeVar

from greenlet import GreenletExit, getcurrent, greenlet

from mongottl.document.freeing import free_some
from mongottl.document.interrupt import (
    begin_evaluation,
    begin_undivided,
    clear_check,
    end_evaluation,
    end_undivided,
    in_undivided,
    may_leave,
    set_aside_undivided,
    set_check,
    take_up_undivided,
)
from mongottl.errors import CommandError
from mongottl.exec.running.steps import Aside, Flush, InThread, Step, Wait, WithoutWriters

T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")

# How long an operation goes on before it is left in the middle of an evaluation.
LEFT_AFTER_S: Final = 0.002
# How long short steps follow one another before others may run: switching takes as long as a short step.
TOGETHER_S: Final = 0.0002
# Number of greenlets that are kept for other operations: a new one costs as much as forty switches.
_MOST_IDLE: Final = 64


class _Abandoned(BaseException):
    """Ends an operation whose steps are closed. No Exception, so that no evaluation catches it."""


class NeedsStack(BaseException):
    """Ends an attempt to carry out an operation without a stack. It has not committed anything.

    No Exception, so that nothing that the operation calls catches it.
    """


class _Kept(BaseException):
    """Ends the function that a stack hosts, because an operation has kept the stack; that has ended now.

    No Exception, so that nothing that the function calls catches it.
    """

    def __init__(self, result: Any, error: BaseException | None) -> None:
        self.result = result
        self.error = error


class StepTimes:
    """left_after_s: how long an operation goes on before it is left in the middle of an evaluation.
    together_s: how long short steps follow one another.
    """

    def __init__(self, left_after_s: float = LEFT_AFTER_S, together_s: float = TOGETHER_S) -> None:
        self.left_after_s = left_after_s
        self.together_s = together_s


class Interruptible:
    """What a stack knows of the operation that runs on it.

    was_left: whether it was left in the middle of a step, so that what it had read may have changed.
    was_ended: whether `check_interrupt` has raised. From then on it only cleans up, and waits of the storage engine do
    not end it once more.
    is_answered: whether all is done but to write its reply, which may be long: it reads nothing any more, and nothing
    ends it.
    """

    def __init__(self) -> None:
        self.was_left = False
        self.was_ended = False
        self.is_answered = False

    def ended_by(self, error: CommandError) -> CommandError:
        """Notes that this error ends it."""
        self.was_ended = True
        return error

    def check_interrupt(self) -> None:
        """Raises what ends the operation: MaxTimeMSExpired (50), Interrupted (11601), InterruptedAtShutdown (11600)."""
        raise NotImplementedError

    def owner(self) -> str:
        """Whose limits in total count for it."""
        raise NotImplementedError

    def reads_past(self) -> bool:
        """Whether it reads what was stored at an earlier time: a snapshot, or what its transaction sees."""
        raise NotImplementedError

    def register(self) -> None:
        """Called whenever it is left: others can see it from then on, and end it."""
        raise NotImplementedError


class _Unknown(Interruptible):
    """An operation whose request is read. Nobody sees it, and nothing but the end of its client ends it."""

    def check_interrupt(self) -> None:
        pass

    def owner(self) -> str:
        return ""

    def reads_past(self) -> bool:
        return False

    def register(self) -> None:
        pass


_UNKNOWN: Final = _Unknown()


class Stack:
    """A greenlet in which one operation runs after another.

    operation: of which it is the stack at present; None for one that no client has sent, and before it is known.
    started_s: when it has begun, in monotonic seconds; begun_s: when its present step has. hosts: whether it answers
    operations, one after another, and none of them was left.
    """

    def __init__(self, stacks: "Stacks") -> None:
        self._stacks = stacks
        self._run: Any = greenlet(_run_operations)
        # For the greenlet, not arguments of `switch`: it would hold these while it is idle.
        self.function: Callable[[], Any] | None = None
        self.result: Any = None
        self.error: BaseException | None = None
        self.has_ended = False
        self.hosts = False
        self.operation: Interruptible | None = None
        self.started_s = 0.0
        # Why it was left; what is raised where it was left, None to go on; whether it must end.
        self.step: Step = None
        self._thrown: BaseException | None = None
        self._is_abandoned = False
        self._checks: list[Callable[[], None]] = []
        self._at_end: list[Callable[[], None]] = []
        self.begun_s = 0.0
        self._until_s = 0.0
        self._leave_at_s = 0.0

    def begin(self, function: Callable[[], Any], hosts: bool = False) -> bool:
        """Begins an operation; whether it has ended. hosts: whether the function answers several."""
        self.function = function
        self.hosts = hosts
        self.operation = None
        self.has_ended = False
        self._is_abandoned = False
        return self._switch(True)

    def begin_hosted(self) -> None:
        """Begins one of the operations that it hosts."""
        now_s = self._stacks.monotonic_s()
        self.started_s = now_s
        self._set_times(now_s)

    def end_hosted(self) -> None:
        """Ends one that was not left."""
        if self._at_end:
            self._call_at_end()
        if self.operation is not None:
            self.operation = None
            clear_check()

    def resume(self, error: BaseException | None) -> bool:
        """Goes on with an operation that was left; whether it has ended. error: is raised where it was left."""
        self._thrown = error
        return self._switch(False)

    def abandon(self) -> None:
        """Ends an operation that was left."""
        self._is_abandoned = True
        self._thrown = _Abandoned()
        self._switch(False)

    def _switch(self, begins: bool) -> bool:
        stacks = self._stacks
        now_s = stacks.monotonic_s()
        if begins:
            self.started_s = now_s
        self._set_times(now_s)
        outer = stacks.present
        stacks.present = self
        if self.operation is not None:
            set_check(stacks.check, stacks.monotonic_s, now_s)
        run = self._run
        # The server's thread may be in another greenlet than before.
        run.parent = getcurrent()
        run.stack = self
        try:
            run.switch()
        finally:
            stacks.present = outer
            if self.operation is not None:
                clear_check()
        return self.has_ended

    def _set_times(self, now_s: float) -> None:
        times = self._stacks.times
        self.begun_s = now_s
        self._until_s = now_s + times.together_s
        self._leave_at_s = now_s + times.left_after_s

    def carry(self, operation: Interruptible) -> None:
        """Makes the operation that has begun known: from now on its evaluations check for interruption."""
        self.operation = operation
        set_check(self._stacks.check, self._stacks.monotonic_s, self.begun_s)

    def take(self) -> Any:
        """The result at the end; raises the error of a failed operation."""
        if self._at_end:
            self._call_at_end()
        result = self.result
        error = self.error
        self.result = None
        self.error = None
        self.operation = None
        if error is not None:
            try:
                raise error
            finally:
                del error  # its traceback has this frame
        return result

    def end_step(self) -> float:
        """Called between two steps: how long the last one has taken, in seconds."""
        now_s = self._stacks.monotonic_s()
        taken_s = now_s - self.begun_s
        self.begun_s = now_s
        return taken_s

    @property
    def is_over(self) -> bool:
        """Whether it is time, after `end_step`, to let others run."""
        return self.begun_s >= self._until_s

    def leave(self, step: Step) -> None:
        """Lets others run, and does what the step says. Raises the error with which that has failed.

        An operation that is given up is not left again: it ends without letting others run, and where it would wait.
        """
        if self._is_abandoned:
            if isinstance(step, Wait):
                raise _Abandoned
            return
        if in_undivided():
            raise AssertionError("an operation cannot be left in an undivided block")
        self.hosts = False
        if self._at_end:
            self._call_at_end()
        evaluating = end_evaluation()
        operation = self.operation
        if operation is not None:
            operation.register()
        self._stacks.examine_if_due()
        self.step = step
        self._run.parent.switch()
        self.step = None
        error = self._thrown
        if error is not None:
            self._thrown = None
            raise error
        if evaluating:
            begin_evaluation()
        for check in self._checks:
            check()

    def free_all(self) -> None:
        """Frees what the operation has let go, when it has ended; others run meanwhile. If it is given up, or was
        answered in the middle of a unit of work (`Stacks.let_ask`), the next operation does so.

        One that has hosted others is not left for that: who goes on with it would take the rest for one of theirs.
        """
        if self._is_abandoned or in_undivided() or not free_some() or self.hosts:
            return
        if self.operation is not None:
            self.operation = None
            clear_check()
        with suppress(_Abandoned):
            while free_some():
                self.end_step()
                if self.is_over:
                    self.leave(None)

    def leave_midway(self, step: Step) -> None:
        """`leave` in the middle of a step."""
        if self.operation is not None:
            self.operation.was_left = True
        self.leave(step)

    def leave_for_storage(self, step: Step) -> None:
        """`leave` where the storage engine waits, also in an undivided block."""
        blocks = set_aside_undivided()
        at_end = self._at_end
        self._at_end = []
        try:
            self.leave_midway(step)
        finally:
            take_up_undivided(blocks)
            self._at_end = at_end

    def leave_for_storage_if_due(self) -> None:
        """Lets others run where the storage engine has waited just before, if the operation has gone on since for as
        long as evaluations do."""
        if self._stacks.monotonic_s() >= self._leave_at_s:
            self.leave_for_storage(None)

    def at_end_of_step(self, action: Callable[[], None]) -> None:
        """Has `action` called when the operation next lets others run by itself, or has ended.

        Where the storage engine waits, no step ends.
        """
        self._at_end.append(action)

    def _call_at_end(self) -> None:
        actions = self._at_end
        self._at_end = []
        for action in actions:
            action()

    @property
    def is_abandoned(self) -> bool:
        """Whether its operation was given up, so that it is not left again."""
        return self._is_abandoned

    def leave_if_due(self) -> None:
        """Called by checks for interruption, anywhere: leaves an evaluation that takes long."""
        if self._stacks.monotonic_s() >= self._leave_at_s and may_leave():
            self.leave_midway(None)

    def compute(self, function: Callable[[], Any], check: Callable[[], None]) -> Any:
        """What the function returns. check: called whenever it was left."""
        checks = self._checks
        self._checks = [*checks, check]
        try:
            return function()
        finally:
            self._checks = checks


class Steps(Generic[T]):
    """What is left of an operation that was left. Its next step is what it waits for now, None if it only lets others
    run; StopIteration with its result, or its error, at the end."""

    def __init__(self, stacks: "Stacks", stack: Stack) -> None:
        self._stacks = stacks
        self._stack: Stack | None = stack
        self._is_new = True

    def __iter__(self) -> "Steps[T]":
        return self

    def __next__(self) -> Step:
        stack = self._stack
        if stack is None:
            raise StopIteration
        if self._is_new:
            self._is_new = False
            return stack.step
        return self._go_on(stack, None)

    def throw(self, error: BaseException) -> Step:
        """The next step after an error, which is raised where the operation was left."""
        stack = self._stack
        if stack is None:
            raise error
        self._is_new = False
        return self._go_on(stack, error)

    def _go_on(self, stack: Stack, error: BaseException | None) -> Step:
        if not stack.resume(error):
            return stack.step
        self._stack = None
        try:
            result = self._stacks.settle(stack)
        except StopIteration as stop:
            raise RuntimeError("an operation raised StopIteration") from stop
        raise StopIteration(result)

    def close(self) -> None:
        """Ends the operation where it was left."""
        stack = self._stack
        if stack is None:
            return
        self._stack = None
        stack.abandon()
        with suppress(_Abandoned):
            self._stacks.settle(stack)


class Stacks:
    """Runs the operations of one server.

    monotonic_s: the clock's method. times: how long operations go on. present: the stack that runs now, None outside.
    check: called for checks for interruption within evaluations; it calls `check_present`.
    attempts: whether an operation is attempted without a stack, and has not committed anything yet.
    answer_apart: answers the clients that wait and whose requests touch no data.
    examine_new: has Python's garbage collector examine the objects that are new.
    """

    def __init__(self, monotonic_s: Callable[[], float], times: StepTimes) -> None:
        self.monotonic_s = monotonic_s
        self.times = times
        self.present: Stack | None = None
        self.check: Callable[[], None] = self.check_present
        self.attempts = False
        self.answer_apart: Callable[[], None] = _nothing
        self.examine_new: Callable[[], None] = _nothing
        # Whether clients are answered in the middle of an operation (`let_ask`).
        self.asks = False
        self._asked_s = 0.0
        self._examined_s = 0.0
        self._idle: list[Stack] = []

    def begin(self, function: Callable[[], T]) -> T | Steps[T]:
        """Begins an operation: its result, or its steps if it was left before its end. Raises its error."""
        idle = self._idle
        stack = idle.pop() if idle else Stack(self)
        if stack.begin(function):
            result: T = self.settle(stack)
            return result
        return Steps(self, stack)

    def host(self, function: Callable[[], None]) -> Steps[Any] | None:
        """Calls a function that answers operations by `call`: None when it has returned; the steps of an operation that
        was left, with which the function has ended, too."""
        idle = self._idle
        stack = idle.pop() if idle else Stack(self)
        if stack.begin(function, hosts=True):
            self.settle(stack)
            return None
        return Steps(self, stack)

    def call(self, function: Callable[[A, B], T], first: A, second: B) -> T | Steps[T]:
        """`begin` for a function of two arguments. It runs on the present stack if that hosts operations."""
        stack = self.present
        if stack is None or not stack.hosts:
            return self.begin(partial(function, first, second))
        stack.begin_hosted()
        try:
            result = function(first, second)
        except GreenletExit:
            raise
        except BaseException as error:
            if not stack.hosts:
                raise _Kept(None, error) from None
            stack.end_hosted()
            raise
        if not stack.hosts:
            raise _Kept(result, None)
        stack.end_hosted()
        return result

    def attempt(self, function: Callable[[A, B], T], first: A, second: B) -> T:
        """What a function returns, and what it raises, that is called without a stack, and has changed nothing before.

        NeedsStack if it turns out to need one: then it has to be called again, on a stack.
        """
        self.attempts = True
        set_check(self.check, self.monotonic_s)
        try:
            return function(first, second)
        finally:
            self.end_attempt()

    def end_attempt(self) -> None:
        """Called after each commit of what the operation does: it is not carried out again, so it must not be given up
        from then on, nor wait."""
        if self.attempts:
            self.attempts = False
            clear_check()

    def require(self) -> None:
        """Called where an operation that is attempted may have to wait, or would take long. NeedsStack."""
        if self.attempts:
            raise NeedsStack

    def settle(self, stack: Stack) -> Any:
        """The result of an operation that has ended; its stack is given to others."""
        if len(self._idle) < _MOST_IDLE:
            self._idle.append(stack)
        return stack.take()

    def carry(self, operation: Interruptible) -> None:
        """Makes the operation known that runs now."""
        if self.present is not None:
            self.present.carry(operation)

    def give_way(self) -> None:
        """Called between two steps of work that no client waits for: lets others run, if it has gone on long enough."""
        stack = self.present
        if stack is not None:
            free_some()
            stack.end_step()
            if stack.is_over:
                stack.leave(None)

    def worked_s(self, since_s: float) -> float:
        """For how long others have waited for the present operation, at most since then: while it was left, they ran.

        since_s: in monotonic seconds.
        """
        stack = self.present
        return self.monotonic_s() - (since_s if stack is None else max(since_s, stack.begun_s))

    def let_ask(self) -> None:
        """Called between two parts of a unit of work that takes long: has those answered whose requests touch no data.

        The operation is not left for that, and nothing else runs: so it is called where it cannot be left. What is
        answered must not wait either (`asks`): it would be taken to be in the unit of work.
        """
        stack = self.present
        if self.asks or self.worked_s(self._asked_s) < self.times.left_after_s:
            return
        self.examine_if_due()
        evaluates = end_evaluation()
        self.present = None
        check = None if stack is None else clear_check()
        begin_undivided()
        self.asks = True
        try:
            self.answer_apart()
        finally:
            self.asks = False
            end_undivided(False)
            self.present = stack
            if check is not None:
                set_check(check, self.monotonic_s)
            if evaluates:
                begin_evaluation()
            self._asked_s = self.monotonic_s()

    def examine_if_due(self) -> None:
        """Called where an operation is left: examines new objects about as often as one that takes long is left."""
        if self.monotonic_s() - self._examined_s >= self.times.left_after_s:
            self.examine_new()
            self._examined_s = self.monotonic_s()

    def pause(self) -> None:
        """`let_ask` where the storage engine is in the middle of a unit of work (`StorageEngine.set_pause`). NeedsStack
        if the operation is attempted."""
        self.require()
        self.let_ask()

    def wait(self, step: Wait) -> None:
        """Returns when the wait is over."""
        if self.present is not None:
            self.present.leave(step)
        else:
            self.require()

    def at_end_of_step(self, action: Callable[[], None]) -> None:
        """`Stack.at_end_of_step` of the present operation; at once if it has no stack."""
        if self.present is None:
            action()
        else:
            self.present.at_end_of_step(action)

    def flush(self) -> None:
        """Returns when all that was committed so far is on disk. EngineUnavailable."""
        if self.present is not None:
            self.present.leave(Flush())
        else:
            self.require()

    def in_thread(self, function: Callable[[], T], without_writers: bool = False) -> T:
        """What a function returns that takes long and does not touch the server's state; it may run in another thread.

        without_writers: whether no other command that writes may go on meanwhile.
        """
        if self.present is None:
            self.require()
            return function()
        step = WithoutWriters(function) if without_writers else InThread(function)
        self.present.leave(step)
        result: T = step.result()  # type: ignore[assignment]
        return result

    def run_aside(self, function: Callable[[], object]) -> object:
        """`interrupt.run_aside` for the evaluation of the present operation."""
        stack = self.present
        if stack is None:
            self.require()
            return function()
        step = Aside(function)
        stack.leave_midway(step)
        if stack.operation is not None and not stack.operation.is_answered:
            stack.operation.check_interrupt()
        return step.result()

    def compute_unknown(self, function: Callable[..., T], *arguments: Any) -> T:
        """`compute` of what a long request means, before the operation is known that carries it out."""
        stack = self.present
        if stack is None:
            return function(*arguments)
        stack.carry(_UNKNOWN)
        try:
            return self.compute(partial(function, *arguments))
        finally:
            stack.operation = None
            clear_check()

    def compute(self, function: Callable[[], T], check: Callable[[], None] | None = None) -> T:
        """What the function returns; it is left as evaluations are.

        check: called whenever it was left; raises an error, which ends it, if what it depends on has changed.
        """
        stack = self.present
        begun = begin_evaluation()
        try:
            if stack is None or check is None:
                return function()
            result: T = stack.compute(function, check)
            return result
        finally:
            if begun:
                end_evaluation()

    def check_present(self) -> None:
        """Ends the present operation if it must end, and lets others run if its evaluation takes long: where it cannot
        be left, those that touch no data (`let_ask`)."""
        stack = self.present
        if stack is None:
            self.require()
            return
        operation = stack.operation
        if operation is None:
            return
        if not operation.is_answered:
            operation.check_interrupt()
        if in_undivided():
            self.let_ask()
        else:
            stack.leave_if_due()


def _nothing() -> None:
    pass


def _run_operations() -> None:
    """Runs one operation after the other.

    While it is idle it holds nothing. The garbage collector does not see what a greenlet holds that is left, so that
    even a whole server would stay.
    """
    while True:
        stack = _take_stack()
        function = stack.function
        assert function is not None
        stack.function = None
        try:
            stack.result = function()
        except GreenletExit:
            raise
        except _Kept as kept:
            stack.result = kept.result
            stack.error = kept.error
        except BaseException as error:
            stack.error = error
        del function
        stack.free_all()
        stack.has_ended = True
        del stack
        getcurrent().parent.switch()


def _take_stack() -> Stack:
    """The stack of the present greenlet, which does not keep it."""
    present = getcurrent()
    stack: Stack = present.stack
    present.stack = None
    return stack
