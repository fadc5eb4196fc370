"""Calling functions in script processes."""

import os
import select
import signal
import subprocess

import pytest

from mongottl.document.build import encode
from mongottl.document.types import JavaScript
from mongottl.errors import CommandError, ErrorCode
from mongottl.javascript.scripts import MEMORY_BYTES, PROGRAM, Scripts
from mongottl.processes.pool import IDLE_S, MAX_IDLE, Spawner, Turn, WorkerProcess, WorkerProcesses
from tests.unit.javascript.conftest import LONG_LIMIT_MS, Elapsed, MakeScripts


def code_of(scripts: Scripts, body: str) -> int:
    with pytest.raises(CommandError) as caught:
        scripts.call(body, [])
    return caught.value.code


def test_global_variables_live_as_long_as_the_operation(scripts: Scripts) -> None:
    count = "function() { count = typeof count == 'undefined' ? 1 : count + 1; return count; }"
    assert [scripts.call(count, []) for _ in range(3)] == [1.0, 2.0, 3.0]
    scripts.release()
    assert scripts.call(count, []) == 1.0


def test_a_process_serves_one_operation_after_the_other(make: MakeScripts, processes: WorkerProcesses) -> None:
    first = make()
    first.call("function() { leaked = 1; }", [])
    [process] = processes._used
    first.release()
    first.release()
    second = make()
    assert second.call("function() { return typeof leaked; }", []) == "undefined"
    assert set(processes._used) == {process}
    del second
    assert list(processes._idle) == [process]


def test_few_idle_processes_are_kept(make: MakeScripts, processes: WorkerProcesses) -> None:
    used = [make() for _ in range(4)]
    for scripts in used:
        scripts.call("function() {}", [])
    assert len(processes._used) == 4
    for scripts in used:
        scripts.release()
    assert len(processes._used) == 0
    assert len(processes._idle) == MAX_IDLE


def test_scope(scripts: Scripts) -> None:
    scripts.scope = encode({"a": 1, "f": JavaScript("function(x) { return x + a; }")})
    assert scripts.call("function() { return f(2); }", []) == 3.0


def test_many_documents(scripts: Scripts) -> None:
    documents = [encode({"k": i, "v": "x" * i}) for i in range(100)]
    code = "function() { for (let i = 0; i < this.k % 3; i++) emit(this.k, this.v.length); }"
    assert scripts.emitted(code, documents) == [[[float(i), float(i)]] * (i % 3) for i in range(100)]


def test_accumulating(scripts: Scripts) -> None:
    assert scripts.accumulate("(state, a, b) => state + a * b", 1, [[2, 3], [4, 5]]) == 27.0


def test_large_values(scripts: Scripts) -> None:
    text = "äöü" * 500_000
    assert scripts.call("function(x) { return x + x; }", [text]) == text + text


class Pauses:
    """Waits as a server does, and counts for what."""

    def __init__(self) -> None:
        self.to_read = self.to_write = self.others = 0

    def __call__(self, seconds: float, file: int, to_write: bool) -> bool:
        if file < 0:
            self.others += 1
        elif to_write:
            self.to_write += 1
            select.select([], [file], [], seconds)
        else:
            self.to_read += 1
            select.select([file], [], [], seconds)
        return True


def test_others_run_while_a_long_document_is_sent(make: MakeScripts) -> None:
    pauses = Pauses()
    scripts = make(pause=pauses)
    assert scripts.matches("this.a.length == 15e6", encode({"a": "x" * 15_000_000}))
    assert pauses.to_write > 1


def test_others_run_while_a_long_result_is_received_and_decoded(make: MakeScripts) -> None:
    pauses = Pauses()
    scripts = make(pause=pauses)
    code = "function() { return Array.from({length: 100000}, (_, i) => i); }"
    assert scripts.call(code, []) == [float(i) for i in range(100_000)]
    assert pauses.others > 20
    pauses.others = 0
    assert scripts.call("function(x) { return x.length; }", [list(range(100_000))]) == 100_000
    assert pauses.others > 20


def test_script_output_is_collected(make: MakeScripts) -> None:
    lines: list[str] = []
    scripts = make(log=lines.append)
    scripts.call("function() { print('a', 1); printjson({b: [1]}); printjsononeline([NumberLong(2)]); }", [])
    assert lines == ["a 1", '{\n\t"b" : [\n\t\t1\n\t]\n}', "[ NumberLong(2) ]"]
    lines.clear()
    with pytest.raises(CommandError):
        scripts.call("function() { print('before'); x.y; }", [])
    assert lines == ["before"]
    lines.clear()
    scripts.call("function() { for (let i = 0; i < 200; i++) print('x'.repeat(2000)); }", [])
    assert lines == ["x" * 1000 + "…"] * 100 + ["more lines of this call are left out"]


def test_the_limit_of_a_call(make: MakeScripts, processes: WorkerProcesses) -> None:
    scripts = make(call_limit_ms=300)
    assert code_of(scripts, "function() { while (true); }") == ErrorCode.JSInterpreterFailure
    assert processes._used == {}
    scripts.call_limit_ms = LONG_LIMIT_MS
    assert scripts.call("function() { return 1; }", []) == 1.0


def test_an_operation_that_must_end(make: MakeScripts, processes: WorkerProcesses) -> None:
    def check() -> None:
        raise CommandError(ErrorCode.Interrupted, "operation was interrupted")

    scripts = make(check=check)
    with pytest.raises(CommandError) as caught:
        scripts.call("function() { while (true); }", [])
    assert caught.value.code == ErrorCode.Interrupted
    assert processes._used == {}


def started_by(spawner: Spawner | None) -> list[int]:
    """The script processes that run, by their numbers."""
    assert spawner is not None
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid=,stat="], capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in listed.splitlines()]
    return [int(row[0]) for row in rows if int(row[1]) == spawner._process.pid and not row[2].startswith("Z")]


def test_a_process_that_ends(scripts: Scripts, processes: WorkerProcesses) -> None:
    scripts.call("function() {}", [])
    [process] = processes._used
    [number] = started_by(processes._spawner)
    os.kill(number, signal.SIGKILL)
    while process.is_waiting():
        pass
    assert code_of(scripts, "function() {}") == ErrorCode.JSInterpreterFailure
    assert scripts.call("function() { return 1; }", []) == 1.0


def test_an_idle_process_that_ends(make: MakeScripts, processes: WorkerProcesses) -> None:
    first = make()
    first.call("function() {}", [])
    first.release()
    [process] = processes._idle
    [number] = started_by(processes._spawner)
    os.kill(number, signal.SIGKILL)
    while process.is_waiting():
        pass
    assert make().call("function() { return 1; }", []) == 1.0


def test_a_process_that_is_killed_leaves_nothing(make: MakeScripts, processes: WorkerProcesses) -> None:
    scripts = make(call_limit_ms=200)
    assert code_of(scripts, "function() { while (true); }") == ErrorCode.JSInterpreterFailure
    while started_by(processes._spawner):
        pass


def test_a_lower_priority(scripts: Scripts, processes: WorkerProcesses) -> None:
    """Linux compares priorities within a session alone."""
    scripts.call("function() {}", [])
    [number] = started_by(processes._spawner)
    # 19 is the lowest, which these tests may have themselves.
    assert os.getpriority(os.PRIO_PROCESS, number) == min(os.getpriority(os.PRIO_PROCESS, 0) + 10, 19)
    assert os.getsid(number) == os.getsid(0)
    assert os.getpgid(number) != os.getpgid(0)


def test_a_process_is_killed_although_a_forked_one_has_its_files(make: MakeScripts, processes: WorkerProcesses) -> None:
    scripts = make()
    scripts.call("function() {}", [])
    [process] = processes._used
    copy = os.dup(process._life)
    scripts.call_limit_ms = 200
    try:
        assert code_of(scripts, "function() { while (true); }") == ErrorCode.JSInterpreterFailure
        while started_by(processes._spawner):
            pass
    finally:
        os.close(copy)


def test_a_spawner_that_ends(make: MakeScripts, processes: WorkerProcesses) -> None:
    first = make()
    first.call("function() {}", [])
    spawner = processes._spawner
    assert spawner is not None
    spawner._process.kill()
    spawner._process.wait()
    assert make().call("function() { return 1; }", []) == 1.0
    assert first.call("function() { return 1; }", []) == 1.0


@pytest.mark.parametrize(
    "tampering",
    [
        "JSON.parse = JSON.stringify = () => 'x'; Object.keys = () => ['x']; Array.isArray = () => true;",
        "Map.prototype.get = () => 5; WeakMap.prototype.has = () => true;",
        "Array.prototype.map = Array.prototype.splice = () => 5;",
        "Object.prototype['\\0'] = 'objectId'; Object.prototype.error = 1;",
        "String.prototype.includes = () => { throw 1; };",
        "Object.defineProperty(Object.prototype, 'value', {set() {}, get() { return 7; }});",
        "globalThis.String = globalThis.Number = globalThis.Boolean = null;",
        "Function.prototype.apply = Function.prototype.call = () => { while (true); };",
        "Object.defineProperty(Error.prototype, 'toString', {value: () => { while (true); }});",
        "Object.defineProperty(Object.prototype, 'toJSON', {value: () => '\\ud800'});",
    ],
)
def test_tampering_harms_its_own_operation_alone(make: MakeScripts, tampering: str) -> None:
    scripts = make(call_limit_ms=200)
    for body in (
        tampering,
        "return {a: [new Date(0), 1]};",
        "throw new Error('x');",
        "return 'x'.repeat(1e8).split('');",
    ):
        try:
            scripts.call(f"function() {{ {body} }}", [])
        except CommandError as error:
            assert error.code in (ErrorCode.JSInterpreterFailure, ErrorCode.BSONObjectTooLarge, 17279)
    assert make().call("function() { return {a: 1}; }", []) == encode({"a": 1.0})


def test_a_reply_that_is_no_bson(scripts: Scripts) -> None:
    bodies = [
        "return {a: Object.assign(ObjectId(), {x: 1})};",
        "const id = DBPointer('a', {str: 'zz'}); return id;",
        "const t = Timestamp(1, 1); t.t = -1; return t;",
        "const t = Timestamp(1, 1); t.i = 'x'; return t;",
        "return NumberDecimal('1' + '0'.repeat(40) + '1');",
        "return Object.create(BinData.prototype);",
    ]
    for body in bodies:
        try:
            scripts.call(f"function() {{ {body} }}", [])
        except CommandError as error:
            assert error.code == ErrorCode.JSInterpreterFailure


def test_idle_processes_end(make: MakeScripts, processes: WorkerProcesses, elapsed: Elapsed) -> None:
    first, second = make(), make()
    for scripts in (first, second):
        scripts.call("function() {}", [])
    first.release()
    elapsed.now_s += IDLE_S / 2
    second.release()
    processes.end_idle()
    assert len(processes._idle) == 2
    elapsed.now_s += IDLE_S / 2
    processes.end_idle()
    assert len(processes._idle) == 1
    elapsed.now_s += IDLE_S / 2
    processes.end_idle()
    while started_by(processes._spawner):
        pass
    assert make().call("function() { return 1; }", []) == 1.0


class Line:
    """Operations that wait for their turns, without processes. called: the owners whose turns came, in order."""

    def __init__(self, processes: WorkerProcesses) -> None:
        self._processes = processes
        self.called: list[str] = []

    def add(self, owner: str) -> Turn:
        turn = self._processes.line_up(owner)
        if turn.has_come:
            self.called.append(owner)
        turn.wake = lambda: self.called.append(owner)
        return turn


@pytest.fixture
def line(elapsed: Elapsed, monkeypatch: pytest.MonkeyPatch) -> Line:
    monkeypatch.setattr(PROGRAM, "most", 4)
    return Line(WorkerProcesses(PROGRAM, elapsed.monotonic_s))


def test_one_user_leaves_processes_to_others(line: Line) -> None:
    first, *others = [line.add("shop.ann") for _ in range(4)]
    assert line.called == ["shop.ann"] * 2
    assert line.add("shop.bob").has_come
    line._processes.leave(first)
    assert line.called == ["shop.ann", "shop.ann", "shop.bob", "shop.ann"]
    assert [turn.has_come for turn in others] == [True, True, False]


def test_owners_take_turns(line: Line) -> None:
    running = [line.add(owner) for owner in ("a", "b", "c", "d")]
    for owner in ("a", "a", "a", "b", "b", "c"):
        line.add(owner)
    del line.called[:]
    for turn in running:
        line._processes.leave(turn)
    assert line.called == ["a", "b", "c", "a"]


def test_an_operation_that_no_longer_waits_is_not_called(line: Line) -> None:
    running = [line.add(owner) for owner in ("a", "b", "c", "d")]
    leaving, staying = line.add("e"), line.add("e")
    line._processes.leave(leaving)
    line._processes.leave(leaving)
    line._processes.leave(running[0])
    assert staying.has_come
    assert not leaving.has_come
    line._processes.leave(staying)
    assert line._processes.waiting_count == 0
    assert line.add("f").has_come


def test_little_memory_allows_few_processes(elapsed: Elapsed) -> None:
    few = Line(WorkerProcesses(PROGRAM, elapsed.monotonic_s, 8 * 6 * MEMORY_BYTES))
    assert [few.add(owner).has_come for owner in ("a", "a", "a", "a", "b", "b", "b", "b")] == [
        *[True] * 3,
        False,
        *[True] * 3,
        False,
    ]


def test_a_process_is_wanted_by_those_who_have_fewer(make: MakeScripts, processes: WorkerProcesses) -> None:
    def taken(owner: str) -> WorkerProcess:
        return processes.take(processes.line_up(owner))

    of_ann = [taken("ann") for _ in range(PROGRAM.most // 2)]
    of_bob = taken("bob")
    assert not processes.is_wanted(of_ann[0])
    processes.line_up("ann")
    assert processes.waiting_count == 1
    assert processes.is_wanted(of_ann[0])
    assert not processes.is_wanted(of_bob)
    processes.kill(of_ann[0])
    assert processes.waiting_count == 0
    assert not processes.is_wanted(of_ann[1])
