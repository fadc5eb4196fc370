"""The life of an exchange (a request and its reply, none, or several): the states, and the permitted moves as a table.

A connection has one exchange at a time. Who serves it (the poller, between two tasks, or the connection's own task)
looks at its state, does what that asks for, and moves it on by an event:

    Handshake ──► Idle ◄──────────────────────────────────────────────────────────────────┐
                   │ │ part of a request                                                  │ sent, or no reply wanted
                   │ └──► Receiving ◄──► Queued        no memory for the rest of it       │
                   │       │   │                                                          │
                   │       │   └──► Unpacking          long: in a thread, or in steps     │
                   │ whole │         │                                                    │
                   ▼       ▼         ▼                                                    │
      Held ◄──►  AtOnce ◄────────────┘ ───────────────────────────────────────────────────┤
    writers        │  │  ▲                                                               │
    are held       │  │  │ signal, or time is over                                       │
                   │  │  └────── Paused                waits for a signal in the poller   │
                   │  ├───────────►│                                                      │
                   │  │            │ client sends more, or the server stops               │
                   │  │            ▼                                                      │
                   │  └──────► Driven ────────────────────────────────────────────────────┤
                   │ takes       │                                                        │
                   │ long        │ reply                                                  │
                   ├─────────────┤                                                        │
                   │             ├──► Answered             long and compressed, or        │
                   │             │     │    │              the first of several           │
                   │             │     │    └─► Streaming  moreToCome sent, ◄─┐           │
                   │             │     ▼        │   │      more to come       │           │
                   └─────────────┴──► Sending ◄─┘   └─────────────────────────┘           │
                      no room in       │                                                  │
                      the socket       └──────────────────────────────────────────────────┘

    Idle, Receiving, Failed ──► Http        an HTTP client, which is answered in HTTP
    every state ──► Failed                  the poller met an error, for which the task ends the connection
    every state ──► Closed

The attributes of a state are the data that exist in it, so none is empty. A move that is not in the table raises
ImpossibleMoveError, which ends the connection and is logged as any other error of ours; tests fail by it.
"""

from typing import Final, final

from mongottl.exec.running.stack import Steps
from mongottl.exec.running.steps import Step
from mongottl.server.poller import Pause
from mongottl.wire.messages import Request


class ImpossibleMoveError(Exception):
    """An exchange was to make a move that is not in the table."""


class State:
    """Where an exchange is. number: the place of its class in STATES."""

    def __init__(self, number: int) -> None:
        self.number = number

    def give_up(self) -> None:
        """Ends what was begun and is not ended by leaving this state in another way."""


@final
class Handshake(State):
    """The TLS handshake is under way."""

    def __init__(self) -> None:
        super().__init__(0)


@final
class Idle(State):
    """Nothing of a request was looked at. Bytes may be there: those after the previous request."""

    def __init__(self) -> None:
        super().__init__(1)


@final
class Receiving(State):
    """A part of a request is there, or all of one that is compressed, and its memory counts."""

    def __init__(self) -> None:
        super().__init__(2)


@final
class Queued(State):
    """The task waits until there is memory for the request."""

    def __init__(self) -> None:
        super().__init__(3)


@final
class Unpacking(State):
    """A long request is there: it is decompressed, or joined and its checksum computed, while others run."""

    def __init__(self) -> None:
        super().__init__(4)


@final
class AtOnce(State):
    """A command runs, and others do not. full: whether the client may have sent more after its request."""

    def __init__(self, message: Request, full: bool) -> None:
        super().__init__(5)
        self.message = message
        self.full = full


@final
class Held(State):
    """A command that writes was not begun, because writers are held up."""

    def __init__(self, message: Request) -> None:
        super().__init__(6)
        self.message = message


@final
class Paused(State):
    """A command waits for a signal, in the poller.

    steps: what is left of it. for_storage: whether the storage engine gives the signal.
    """

    def __init__(self, message: Request, steps: Steps[bytes], pause: Pause, for_storage: bool) -> None:
        super().__init__(7)
        self.message = message
        self.steps = steps
        self.pause = pause
        self.for_storage = for_storage

    def give_up(self) -> None:
        self.pause.end()
        self.steps.close()


@final
class Driven(State):
    """A command is the task's to run. steps: what is left of it. step: what it waits for now, None for nothing."""

    def __init__(self, message: Request, steps: Steps[bytes], step: Step) -> None:
        super().__init__(8)
        self.message = message
        self.steps = steps
        self.step = step

    def give_up(self) -> None:
        self.steps.close()


@final
class Answered(State):
    """The command has ended. body: the reply's document, which the task compresses, or the first of several."""

    def __init__(self, message: Request, body: bytes) -> None:
        super().__init__(9)
        self.message = message
        self.body = body


@final
class Streaming(State):
    """The client was promised more replies: the latest had `moreToCome`. The commands that make them run here, too."""

    def __init__(self) -> None:
        super().__init__(10)


@final
class Sending(State):
    """The only reply, or the last of several, is being sent. sent: how many bytes of it the socket has taken."""

    def __init__(self, data: bytes, sent: int = 0) -> None:
        super().__init__(11)
        self.data = data
        self.sent = sent


@final
class Http(State):
    """The client speaks HTTP. It is answered, and nothing else of it is read."""

    def __init__(self) -> None:
        super().__init__(12)


@final
class Failed(State):
    """The poller has met an error, which the task raises to end the connection."""

    def __init__(self, error: Exception) -> None:
        super().__init__(13)
        self.error = error


@final
class Closed(State):
    """The connection has ended."""

    def __init__(self) -> None:
        super().__init__(14)


STATES: Final[tuple[type[State], ...]] = (
    Handshake,
    Idle,
    Receiving,
    Queued,
    Unpacking,
    AtOnce,
    Held,
    Paused,
    Driven,
    Answered,
    Streaming,
    Sending,
    Http,
    Failed,
    Closed,
)

# The states without data.
HANDSHAKE: Final = Handshake()
IDLE: Final = Idle()
RECEIVING: Final = Receiving()
QUEUED: Final = Queued()
UNPACKING: Final = Unpacking()
STREAMING: Final = Streaming()
HTTP: Final = Http()
CLOSED: Final = Closed()


@final
class Event:
    """What moves an exchange on. number: its place in EVENTS."""

    def __init__(self, number: int, name: str) -> None:
        self.number = number
        self.name = name

    def __repr__(self) -> str:
        return self.name


SHAKEN: Final = Event(0, "the handshake has ended")
PART: Final = Event(1, "a part of a request has come")
NO_MEMORY: Final = Event(2, "there is no memory for the request")
MEMORY: Final = Event(3, "memory for the request is set aside")
LONG: Final = Event(4, "a whole request is long")
MESSAGE: Final = Event(5, "a whole request is taken")
HOLD: Final = Event(6, "writers are held up")
RELEASE: Final = Event(7, "writers may go on")
WAIT: Final = Event(8, "the command waits for a signal")
RESUME: Final = Event(9, "the wait for a signal is over")
INTERRUPT: Final = Event(10, "the client sends something or closes its side during the wait, or the server stops")
LEAVE: Final = Event(11, "the command takes long, or waits")
ANSWER: Final = Event(12, "the reply takes long to send, or others may follow it")
UNWANTED: Final = Event(13, "the client wants no reply")
SEND: Final = Event(14, "the last reply is sent, and the socket may not take all of it")
MORE: Final = Event(15, "a reply is sent that another one follows")
SENT: Final = Event(16, "the last reply is sent")
HTTP_REQUEST: Final = Event(17, "what has come is HTTP")
FAIL: Final = Event(18, "the poller has met an error")
CLOSE: Final = Event(19, "the connection ends")

EVENTS: Final = (
    SHAKEN,
    PART,
    NO_MEMORY,
    MEMORY,
    LONG,
    MESSAGE,
    HOLD,
    RELEASE,
    WAIT,
    RESUME,
    INTERRUPT,
    LEAVE,
    ANSWER,
    UNWANTED,
    SEND,
    MORE,
    SENT,
    HTTP_REQUEST,
    FAIL,
    CLOSE,
)

# What ends a connection, in every state but the last.
_ENDS: Final[dict[Event, type[State]]] = {FAIL: Failed, CLOSE: Closed}
# How a command that has ended is answered.
_REPLIES: Final[dict[Event, type[State]]] = {SENT: Idle, UNWANTED: Idle, SEND: Sending, ANSWER: Answered}
# What may come while there is no whole request.
_COMES: Final[dict[Event, type[State]]] = {
    PART: Receiving,
    NO_MEMORY: Queued,
    LONG: Unpacking,
    MESSAGE: AtOnce,
    HTTP_REQUEST: Http,
}

# The permitted moves: by state, then by event, the state to which it leads.
MOVES: Final[dict[type[State], dict[Event, type[State]]]] = {
    Handshake: {SHAKEN: Idle, **_ENDS},
    Idle: {**_COMES, **_ENDS},
    Receiving: {**_COMES, **_ENDS},
    Queued: {MEMORY: Receiving, **_ENDS},
    Unpacking: {MESSAGE: AtOnce, **_ENDS},
    AtOnce: {HOLD: Held, WAIT: Paused, LEAVE: Driven, **_REPLIES, **_ENDS},
    Held: {RELEASE: AtOnce, **_ENDS},
    Paused: {RESUME: AtOnce, INTERRUPT: Driven, **_ENDS},
    Driven: {**_REPLIES, **_ENDS},
    Answered: {MORE: Streaming, SEND: Sending, **_ENDS},
    Streaming: {MORE: Streaming, SEND: Sending, **_ENDS},
    Sending: {SENT: Idle, **_ENDS},
    Http: {**_ENDS},
    Failed: {HTTP_REQUEST: Http, **_ENDS},
    Closed: {},
}

_FORBIDDEN: Final = -1


def _targets() -> list[int]:
    """MOVES as numbers of states, by number of state and number of event: two moves are made for each request."""
    targets = []
    for state in STATES:
        for event in EVENTS:
            target = MOVES[state].get(event)
            targets.append(_FORBIDDEN if target is None else STATES.index(target))
    return targets


_TARGETS: Final = _targets()
_EVENTS: Final = len(EVENTS)


@final
class Exchange:
    """The exchange of one connection. state: where it is."""

    def __init__(self, state: State) -> None:
        self.state = state

    def move(self, event: Event, state: State) -> None:
        """Moves to `state`. ImpossibleMoveError, without effect, unless the table has it for this event."""
        if _TARGETS[self.state.number * _EVENTS + event.number] != state.number:
            raise ImpossibleMoveError(
                f"{event.name}: an exchange that is {type(self.state).__name__} cannot become {type(state).__name__}"
            )
        self.state = state

    def fail(self, error: Exception) -> None:
        """Leaves an error to the task, and ends what was begun."""
        state = self.state
        self.move(FAIL, Failed(error))
        state.give_up()

    def close(self) -> None:
        """Ends what was begun, because the connection ends."""
        state = self.state
        self.move(CLOSE, CLOSED)
        state.give_up()
