"""Requests that wait in the server for request units, with DisableRateLimitingResponses, against a simple model.

Model: a budget serves, in each second of the clock, as many inserts as it takes to use it up; those that begin while
budgets are not enforced cost it nothing. An insert beyond that waits until a later second, until the budget is raised,
until budgets are not enforced any more, or until it is killed; it is refused when the account's requests do not wait
any more, and fails 60 seconds after it began.
"""

from typing import Any

import bson
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mongottl.commands import COMMANDS
from mongottl.commands.request import GenericArguments
from mongottl.dialect.cosmos.account import AccountSettings
from mongottl.dialect.cosmos.dialect import configure_account, cosmos_of
from mongottl.dialect.cosmos.gateway import CosmosGateway
from mongottl.errors import CommandError
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.running.stack import Steps
from mongottl.exec.running.steps import Wait
from tests.running import START_MS, Running
from tests.steps import run_to_end

# What one insert costs: 5.5 for each KB of a document of 100 KB.
UNITS_OF_INSERT = 550
WAITS = "DisableRateLimitingResponses"
DONE = "done"


class Waiting:
    """An insert under way. outcome: None while it waits, else `DONE` or the code of its error."""

    def __init__(self, op: OperationContext, steps: Steps[Any]) -> None:
        self.op = op
        self.began_ms = op.now_ms
        self.steps = steps
        self.outcome: str | int | None = None
        self.go_on()

    def go_on(self) -> None:
        """Runs the request until it waits or ends."""
        try:
            step = next(self.steps)
            assert isinstance(step, Wait)
            assert step.signal is self.op.waits_for
            assert step.signal is not None and not step.signal.notified
            assert step.may_abandon
        except StopIteration as stop:
            self.outcome = outcome_of(stop.value)
        except CommandError as error:
            self.outcome = error.code


def outcome_of(reply: dict[str, Any]) -> str | int:
    if "writeErrors" not in reply:
        return DONE
    (failed,) = reply["writeErrors"]
    code = bson.decode(failed)["code"] if isinstance(failed, bytes) else failed["code"]
    return int(code)


class Requests(RuleBasedStateMachine):
    @initialize(offer=st.integers(4, 30))
    def start(self, offer: int) -> None:
        self.running = Running(dialect="cosmos")
        dialect = cosmos_of(self.running.service)
        self.account = dialect.account
        self.gateway = CosmosGateway(self.running.service, dialect.account, dialect.budgets)
        self.last_id = 0
        # The model.
        self.offer = offer * 100
        self.enforced = True
        self.waits = True
        self.spent = 0
        self.expected: dict[int, str | int | None] = {}
        self.requests: list[Waiting] = []
        self.configure()
        run_to_end(self.action("CreateCollection"))

    def configure(self) -> None:
        configure_account(
            self.running.service,
            AccountSettings(
                frozenset([WAITS] if self.waits else []), throughput="enforced" if self.enforced else "metered"
            ),
        )

    def action(self, name: str) -> Any:
        return self.running.start({"customAction": name, "collection": "orders", "offerThroughput": self.offer})

    # What happens.

    @rule()
    def insert(self) -> None:
        op = self.running.op()
        op.uses("orders")
        self.last_id += 1
        document = {"_id": self.last_id, "filler": "x" * (100 * 1024 - 40)}
        body = bson.encode({"insert": "orders", "documents": [document]})
        spec = COMMANDS["insert"]
        request = spec.request._make(spec.parser.parse(body, [], GenericArguments()))
        outcome = self.running.service.stacks.begin(lambda: self.gateway.execute(spec, op, request))
        if not self.enforced:
            assert isinstance(outcome, dict) and outcome_of(outcome) == DONE
            return
        if not isinstance(outcome, Steps):
            assert isinstance(outcome, dict)
            assert self.model_insert() == outcome_of(outcome)
            return
        waiting = Waiting(op, outcome)
        expected = self.model_insert()
        if waiting.outcome is not None:
            assert waiting.outcome == expected
            return
        assert expected is None
        self.requests.append(waiting)

    @rule(ms=st.integers(1, 2500))
    def advance(self, ms: int) -> None:
        before = self.second()
        self.running.clock.advance(ms / 1000)
        if self.second() != before:
            self.spent = 0
        self.running.service.note_clock_change()
        self.wake()

    @precondition(lambda self: self.requests)
    @rule()
    def a_minute_passes(self) -> None:
        self.advance(60_000)

    @rule(offer=st.integers(4, 30))
    def update_collection(self, offer: int) -> None:
        self.offer = offer * 100
        run_to_end(self.action("UpdateCollection"))
        self.wake()

    @rule(enforced=st.booleans(), waits=st.booleans())
    def configure_cosmos(self, enforced: bool, waits: bool) -> None:
        self.enforced = enforced
        self.waits = waits
        self.configure()
        self.wake()

    @precondition(lambda self: self.requests)
    @rule(choice=st.integers(0, 20))
    def kill(self, choice: int) -> None:
        victim = self.requests.pop(choice % len(self.requests))
        victim.op.kill()
        assert victim.op.waits_for is not None and victim.op.waits_for.notified
        victim.go_on()
        assert victim.outcome == 11601

    @precondition(lambda self: self.requests)
    @rule(choice=st.integers(0, 20))
    def disconnect(self, choice: int) -> None:
        self.requests.pop(choice % len(self.requests)).steps.close()

    # What is expected.

    def second(self) -> int:
        return self.running.clock.now_ms() // 1000

    def model_insert(self) -> str | int | None:
        """The outcome of an insert that asks for its budget now; None if it waits."""
        if self.enforced and self.spent >= self.offer:
            return None if self.waits else 16500
        self.spent += UNITS_OF_INSERT
        return DONE

    def wake(self) -> None:
        """Lets all requests go on that were woken, and compares what becomes of them."""
        left = []
        for waiting in self.requests:
            signal = waiting.op.waits_for
            assert signal is not None and signal.notified
            waiting.go_on()
            if self.running.clock.now_ms() - waiting.began_ms >= 60_000:
                assert waiting.outcome == 50
            elif waiting.outcome is None:
                assert self.model_insert() is None
                left.append(waiting)
            else:
                assert waiting.outcome == self.model_insert()
        self.requests = left

    @invariant()
    def what_waits_would_not_be_served(self) -> None:
        if getattr(self, "requests", None):
            assert self.enforced and self.waits and self.spent >= self.offer

    def teardown(self) -> None:
        for waiting in getattr(self, "requests", []):
            waiting.steps.close()


TestRequests = Requests.TestCase
TestRequests.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_a_waiting_request_looks_once_a_second() -> None:
    """The machine's clock may be set without notice, and a clock that stands still tells no time to wait for."""
    machine = Requests()
    machine.start(4)
    assert machine.running.clock.now_ms() == START_MS
    machine.insert()
    machine.insert()
    (waiting,) = machine.requests
    step = next(waiting.steps)
    assert isinstance(step, Wait)
    assert step.seconds == 1.0
    machine.running.clock.freeze(False)
    step = next(waiting.steps)
    assert isinstance(step, Wait)
    assert 0.0 < step.seconds <= 0.5
    machine.teardown()
