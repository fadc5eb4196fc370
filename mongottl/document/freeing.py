"""Freeing of what has very many parts, in slices between which others run.

When the last reference to a list goes, Python frees all its elements at once: 40 ms for a million of short lists. Those
are let go anywhere: by an operator that has used its operands, by an error, with the plan of a command that has ended.
So whatever may have as many elements as a client likes is made as a `LongList` once it has LONG of them. It does not
die with its last reference, but is put aside:

    last reference goes ──► put aside ──► evaluations (`interrupt.give_way`) and commands that have ended
                                          (`exec.running.stack`) free it, a slice at a time

A tree of long lists is put aside one list after the other. What has fewer elements is freed at once, as ever. Other
containers are put aside by who has them, when they are not used any more (`put_aside`).

The garbage collector does not examine them either: in each of its collections it would look at all elements of a list
that is new, 30 ms for a million.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar

from mypy_extensions import i64, mypyc_attr

from mongottl.document.copied import note_elements
from mongottl.document.untracked import untrack

K = TypeVar("K")
T = TypeVar("T")

# From this number of elements on a list is freed in slices: below it takes 0.05 ms at most, and that of lists of such a
# length 15 ms.
LONG: Final = 512
# The parts of an element of a `HeavyList`: eight of them are freed at once, in 0.5 to 3 ms.
HEAVY: Final = 128
# A BSON document or array of fewer bytes has fewer elements.
LONG_BYTES: Final = 7 * LONG
# Elements that are freed at once: about 0.03 ms, for stages of a plan a few milliseconds.
_SLICE: Final[i64] = 1024
# The most elements that are put aside. What is more is freed at once: there may be nobody who frees it later.
_MOST_ASIDE: Final[i64] = 50_000_000


class _Aside:
    """What has lost its last reference, or is not used any more.

    heavy: lists whose elements have many parts each, and how many. size: the number of elements, roughly.
    """

    def __init__(self) -> None:
        self.lists: list[list[Any]] = []
        self.sets: list[set[Any]] = []
        self.dicts: list[dict[Any, Any]] = []
        self.queues: list[deque[Any]] = []
        self.heavy: list[tuple[list[Any], int]] = []
        self.size: i64 = 0


_aside: Final = _Aside()


@mypyc_attr(native_class=False)  # a subclass of a built-in type cannot be a native class
class LongList(list[Any]):
    """A list that is freed in slices. It may not be part of a reference cycle."""

    __slots__ = ()

    def __init__(self, values: Iterable[Any] = ()) -> None:
        super().__init__(values)
        untrack(self)
        note_elements(len(self))

    def __del__(self) -> None:
        put_aside(self)


@mypyc_attr(native_class=False)
class HeavyList(LongList):
    """A list whose elements have about HEAVY parts each, which is freed in slices from a few elements on."""

    __slots__ = ()

    def __del__(self) -> None:
        put_aside_heavy(self, HEAVY)


@mypyc_attr(native_class=False)
class LongSet(set[Any]):
    """A set that is freed in slices. It may not be part of a reference cycle."""

    __slots__ = ()

    def __init__(self, values: Iterable[Any] = ()) -> None:
        super().__init__(values)
        untrack(self)

    def __del__(self) -> None:
        put_aside(self)


@mypyc_attr(native_class=False)
class LongDict(dict[Any, Any]):
    """A dictionary that is freed in slices. It may not be part of a reference cycle."""

    __slots__ = ()

    def __init__(self, values: Mapping[Any, Any]) -> None:
        super().__init__(values)
        untrack(self)

    def __del__(self) -> None:
        put_aside(self)


def freed_in_slices(values: list[T]) -> list[T]:
    """The list itself if it is short or a LongList, else a LongList of its elements: for lists that others have made.
    What two lists have is freed in slices if one of them is a LongList."""
    return values if len(values) < LONG or isinstance(values, LongList) else LongList(values)


def list_for(count: int) -> list[Any]:
    """A new list for about this many elements."""
    note_elements(count)
    return [] if count < LONG else LongList()


def set_for(count: int) -> set[Any]:
    """A new set for about this many members."""
    return set() if count < LONG else LongSet()


def append_to(lists: dict[K, list[T]], key: K, value: T) -> None:
    """Appends to the list of a key, which is freed in slices once it is long."""
    values = lists.get(key)
    if values is None:
        lists[key] = [value]
        return
    values.append(value)
    if len(values) == LONG:
        lists[key] = LongList(values)


def put_aside(container: list[Any] | set[Any] | dict[Any, Any] | deque[Any]) -> None:
    """Takes what nobody uses any more: it is emptied in slices if it is long. It may not be part of a reference
    cycle."""
    size = len(container)
    if size < LONG or _aside.size >= _MOST_ASIDE:
        return
    untrack(container)
    _aside.size += size
    if isinstance(container, list):
        _aside.lists.append(container)
    elif isinstance(container, dict):
        _aside.dicts.append(container)
    elif isinstance(container, set):
        _aside.sets.append(container)
    else:
        _aside.queues.append(container)


def put_aside_heavy(values: list[Any], parts: int = LONG) -> None:
    """`put_aside` of a list whose elements have about this many parts each."""
    size = len(values) * parts
    if size < LONG or _aside.size >= _MOST_ASIDE:
        return
    untrack(values)
    _aside.size += size
    _aside.heavy.append((values, parts))


def free_some() -> bool:
    """Frees a slice of what was put aside; False if there is nothing."""
    # What is put aside while elements are freed is not touched, nor what another thread frees.
    if _aside.lists:
        values = _aside.lists.pop()
        before: i64 = len(values)
        last = values[-1]
        count: i64 = max(1, _SLICE // (1 + len(last))) if isinstance(last, (list, dict)) else _SLICE
        del values[-count:]
        _aside.size -= before - len(values)
        if values:
            _aside.lists.append(values)
        return True
    if _aside.sets:
        members = _aside.sets.pop()
        freed: i64 = min(len(members), _SLICE)
        for _ in range(freed):
            members.pop()
        _aside.size -= freed
        if members:
            _aside.sets.append(members)
        return True
    if _aside.dicts:
        table = _aside.dicts.pop()
        freed = min(len(table), _SLICE)
        for _ in range(freed):
            table.popitem()
        _aside.size -= freed
        if table:
            _aside.dicts.append(table)
        return True
    if _aside.queues:
        queue = _aside.queues.pop()
        freed = min(len(queue), _SLICE)
        for _ in range(freed):
            queue.pop()
        _aside.size -= freed
        if queue:
            _aside.queues.append(queue)
        return True
    if _aside.heavy:
        values, parts = _aside.heavy.pop()
        freed = min(len(values), max(1, _SLICE // parts))
        del values[len(values) - freed :]
        _aside.size -= freed * parts
        if values:
            _aside.heavy.append((values, parts))
        return True
    return False
