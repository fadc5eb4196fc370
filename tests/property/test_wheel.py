"""The timing wheel equals a sorted list, whatever is armed and however time moves."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from mongottl.ttl.wheel import TimingWheel

START = 1_700_000_000
KEYS = st.sampled_from([0, 1, 2, 2**28 - 1])
# Near and far alike, and often exactly where a digit of base 32 turns over.
DISTANCES = st.one_of(
    st.integers(-40, 70),
    st.integers(-2000, 2000),
    st.integers(-(10**9), 2**31),
    st.builds(lambda power, off: 2**power + off, st.integers(0, 32), st.integers(-2, 2)),
)


class WheelMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now_s = START
        self.wheel = TimingWheel(START)
        self.pairs: list[tuple[int, int]] = []

    def earliest(self) -> int | None:
        return self.pairs[0][0] if self.pairs else None

    @rule(key=KEYS, distance_s=DISTANCES)
    def arm(self, key: int, distance_s: int) -> None:
        due_s = max(0, self.now_s + distance_s)
        before = self.earliest()
        if (due_s, key) not in self.pairs:
            self.pairs = sorted([*self.pairs, (due_s, key)])
        assert self.wheel.arm(key, due_s) == (before is None or due_s < before)

    @rule(key=KEYS, distance_s=DISTANCES, count=st.integers(1, 70), step_s=st.sampled_from([1, 31, 32, 33, 1024]))
    def arm_many(self, key: int, distance_s: int, count: int, step_s: int) -> None:
        first_s = max(0, self.now_s + distance_s)
        fresh = {(first_s + i * step_s, key) for i in range(count)}
        self.pairs = sorted(fresh | set(self.pairs))
        for due_s, _ in fresh:
            self.wheel.arm(key, due_s)

    @rule(data=st.data())
    def arm_again(self, data: st.DataObject) -> None:
        if self.pairs:
            due_s, key = data.draw(st.sampled_from(self.pairs))
            assert not self.wheel.arm(key, due_s)

    @rule(distance_s=DISTANCES)
    def move(self, distance_s: int) -> None:
        self.now_s = max(0, self.now_s + distance_s)
        due = [pair for pair in self.pairs if pair[0] <= self.now_s]
        self.pairs = self.pairs[len(due) :]
        assert self.wheel.advance_to(self.now_s) == due

    @rule(off_s=st.integers(-1, 1), data=st.data())
    def move_to_an_entry(self, off_s: int, data: st.DataObject) -> None:
        if self.pairs:
            second, _ = data.draw(st.sampled_from(self.pairs))
            self.move(second + off_s - self.now_s)

    @rule(key=KEYS)
    def disarm_all(self, key: int) -> None:
        left = [pair for pair in self.pairs if pair[1] != key]
        assert self.wheel.disarm_all(key) == len(self.pairs) - len(left)
        self.pairs = left

    @invariant()
    def same_size_and_next(self) -> None:
        assert len(self.wheel) == len(self.pairs)
        assert self.wheel.next_due_s() == self.earliest()

    @invariant()
    def words_are_counted_once(self) -> None:
        words = len({(due_s // 32, key) for due_s, key in self.pairs})
        assert self.wheel.statistics()["words"] == words

    def teardown(self) -> None:
        assert self.wheel.advance_to(2**38) == self.pairs
        assert len(self.wheel) == 0


TestWheel = WheelMachine.TestCase
