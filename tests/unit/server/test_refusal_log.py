"""Which refusals get a line in the log: `server.refusal_log`."""

from mongottl.server.refusal_log import KEPT_REFUSALS, MAX_LINES, REPEAT_S, Refusal, RefusalLog


def refusal(namespace: str = "shop.orders") -> Refusal:
    return Refusal("find", namespace, 2, "Create the index {at: 1}.")


def test_a_repeated_refusal_is_logged_once_in_a_minute_with_its_number() -> None:
    log = RefusalLog()
    lines = [log.note(refusal(), second / 100) for second in range(10_000)]
    assert {second / 100: times for second, times in enumerate(lines) if times} == {0.0: 1, REPEAT_S: 6000}


def test_refusals_that_differ_are_logged_each() -> None:
    log = RefusalLog()
    others = [refusal(), refusal("shop.carts"), refusal()._replace(command="aggregate"), refusal()._replace(code=3)]
    others.append(refusal()._replace(advice="Create the index {to: 1}."))
    assert [log.note(one, 5.0) for one in others] == [1] * 5
    assert [log.note(one, 6.0) for one in others] == [0] * 5


def test_many_refusals_have_a_bounded_number_of_lines_in_a_minute() -> None:
    log = RefusalLog()
    lines = [log.note(refusal(f"shop.c{number}"), 0.0) for number in range(10_000)]
    assert lines[: MAX_LINES + 2] == [1] * MAX_LINES + [-1, 0]
    assert not any(lines[MAX_LINES + 1 :])
    # Those that were left out come in the next minute, as often as they were refused.
    latest = refusal("shop.c9999")
    assert log.note(latest, REPEAT_S - 1) == 0
    assert log.note(latest, REPEAT_S) == 3


def test_a_bounded_number_of_refusals_is_remembered() -> None:
    log = RefusalLog()
    for number in range(2 * KEPT_REFUSALS):
        log.note(refusal(f"shop.c{number}"), number * REPEAT_S)
    now_s = 2 * KEPT_REFUSALS * REPEAT_S
    assert len(log) == KEPT_REFUSALS
    assert log.note(refusal("shop.c0"), now_s) == 1
