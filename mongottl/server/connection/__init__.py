"""One client's connection: reads requests and sends replies, one request after the other.

    exchange   where the present request is on its way to its reply: the states, and the table of permitted moves
    channel    the bytes: what has been received, and of it the memory that counts; whether the client is still there
    at_once    answers requests within one call, for the poller and for the connection's task
    task       the task of a connection: does what the state of its exchange asks for
    tls        the task of one over TLS: the handshake, and warnings of clients that leave after it
    steps      runs a command that takes long or waits
    replies    sends replies that take long: long ones that are compressed, and several to one request
    http       what HTTP clients are answered

A request has one reply, none (`moreToCome`), or several (`exhaustAllowed`):

    client   hello/getMore, exhaustAllowed ──►
    server   ◄── reply, moreToCome   ◄── reply, moreToCome   ◄── …   ◄── reply      the last one has no moreToCome

Such a stream of replies ends when there are no further ones, when the client sends another request, when it
disconnects, or when the server stops.
"""
