"""Sends replies, in the task of a connection: those that take long, and several to one request."""

import trio

from mongottl.server.connection.at_once import LONG_REPLY_BYTES
from mongottl.server.connection.channel import CLOSED, GONE, SILENT, TALKING, Channel
from mongottl.server.connection.exchange import MORE, SEND, SENT, STREAMING, Answered, Sending
from mongottl.server.connection.steps import ClientLeftError, run_steps
from mongottl.server.message_traits import abandon, has_more
from mongottl.wire.encode import encode_reply, encode_reply_to
from mongottl.wire.messages import CHECKSUM_PRESENT, MORE_TO_COME, NOT_COMPRESSED, OpMsg


async def send_reply(channel: Channel, state: Answered) -> None:
    """Sends the reply to a message, or all of them."""
    message = state.message
    body = state.body
    if (
        isinstance(message, OpMsg)
        and message.exhaust_allowed
        and has_more(message, body, channel.shell.service.features)
    ):
        await _stream(channel, message, body)
        return
    channel.last_reply_id += 1
    if message.compressor != NOT_COMPRESSED and len(body) >= LONG_REPLY_BYTES:
        data = await trio.to_thread.run_sync(encode_reply_to, message, channel.last_reply_id, body)
    else:
        data = encode_reply_to(message, channel.last_reply_id, body)
    await _send_last(channel, data)


async def _stream(channel: Channel, message: OpMsg, body: bytes) -> None:
    """Sends all replies to a request that allows several; each but the last has the flag `moreToCome`."""
    shell = channel.shell
    features = shell.service.features
    response_to = message.request_id
    checksum = message.flags & CHECKSUM_PRESENT
    try:
        while True:
            client = TALKING if channel.wire.unread_size else channel.peek_client_state()
            if client == GONE or client == CLOSED:
                raise ClientLeftError
            more = client == SILENT and has_more(message, body, features) and not shell.stopping.is_set()
            channel.last_reply_id += 1
            flags = checksum | (MORE_TO_COME if more else 0)
            if message.compressor != NOT_COMPRESSED and len(body) >= LONG_REPLY_BYTES:
                data = await trio.to_thread.run_sync(
                    encode_reply, channel.last_reply_id, response_to, body, flags, message.compressor
                )
            else:
                data = encode_reply(channel.last_reply_id, response_to, body, flags, message.compressor)
            if not more:
                await _send_last(channel, data)
                return
            channel.exchange.move(MORE, STREAMING)
            await send(channel, data)
            response_to = channel.last_reply_id
            await trio.lowlevel.checkpoint()
            outcome = shell.dispatcher.handle(message, channel.client)
            body = outcome if isinstance(outcome, bytes) else await run_steps(channel, outcome, None, True)
    except OSError:
        abandon(message, shell.service.cursors)
        raise


async def _send_last(channel: Channel, data: bytes) -> None:
    channel.exchange.move(SEND, Sending(data))
    await send(channel, data)
    channel.end_exchange(SENT)


async def send(channel: Channel, data: bytes, sent: int = 0) -> None:
    """Sends bytes, and waits until the transport has taken all of them. sent: how many it has taken before."""
    channel.shell.service.metrics.bytes_out += len(data) - sent
    transport = channel.transport
    view = memoryview(data)
    while True:
        try:
            sent += transport.send(view[sent:] if sent else data)
        except BlockingIOError:
            await trio.lowlevel.wait_writable(channel.socket)
        if sent == len(data):
            return
        if channel.encrypts:
            # A long message is encrypted in parts, and a fast client leaves no time to others.
            await trio.lowlevel.checkpoint()
