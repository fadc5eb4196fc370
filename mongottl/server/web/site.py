"""Which path answers what, and who may ask.

    /healthz    that the process answers                       anybody
    /readyz     that storage is open and it is not stopping    anybody
    /metrics    figures for Prometheus
    /           the page, with /page.css, /page.js, /icon.svg
    /live       server-sent events: `server` and `history`, then `status` and `schedule` again and again (`live`)
    /clock      POST: moves, stops and restores the server's clock, where test commands are on; needs the page's token
    /collections, POST: /documents   the documents view (`documents`); /documents needs the page's token

What else there is shows names and figures of what is stored. Where users are checked it asks for one who may run
`serverStatus`, as a user with the role clusterMonitor may. The page itself and its documents view are for every user:
they show what the user may read by a driver. `/live` sends only the time to those who may not run `serverStatus`.

A page of another origin could make its reader's browser send requests here. So every request has to name a host that
nobody else can own (an address, `localhost`, a name without dots, or the advertised one), because a name of others may
resolve to this machine (DNS rebinding); and a browser that says from where a request comes has to name this origin.
What changes something needs a token besides, which only the page has.
"""

import hmac
import ipaddress
import json
import os
import re
from collections.abc import Awaitable, Callable
from functools import partial
from importlib import import_module
from importlib.resources import files
from typing import Final

import trio

from mongottl.build_info import is_compiled
from mongottl.clock import VirtualClock
from mongottl.config import VERSION
from mongottl.document.build import encode
from mongottl.document.types import MISSING, Value
from mongottl.document.walk import get_value
from mongottl.errors import ErrorCode
from mongottl.exec.running.client import ClientInfo
from mongottl.security.privileges import CLUSTER, Need
from mongottl.server.driving import drive
from mongottl.server.shell import Shell
from mongottl.server.web.command import run_command
from mongottl.server.web.documents import Documents
from mongottl.server.web.figures import shown_collections
from mongottl.server.web.http import Request, Response, Send, text
from mongottl.server.web.live import Live
from mongottl.server.web.login import Logins
from mongottl.storage.errors import EngineUnavailable

# Sent with every response: nothing of it may be kept, framed, or mixed with what comes from elsewhere.
SECURITY_HEADERS: Final = (
    ("Cache-Control", "no-store"),
    (
        "Content-Security-Policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Referrer-Policy", "no-referrer"),
    ("X-Content-Type-Options", "nosniff"),
)
_CHALLENGE: Final = ("WWW-Authenticate", 'Basic realm="mongottl", charset="UTF-8"')
_VIEW: Final = Need(CLUSTER, "serverStatus")
# What the clock's commands need, as the role hostManager has it.
_MOVE: Final = Need(CLUSTER, "setParameter")
# An address in brackets, or a name or an IPv4 address; perhaps a port.
_HOST_PORT: Final = re.compile(r"(?:\[([0-9a-z:.%]+)\]|([0-9a-z._-]+))(?::[0-9]*)?", re.ASCII)
CLOCK_ACTIONS: Final = ("advance", "freeze", "run", "restore")
# How many may look at the same time.
MAX_VIEWERS: Final = 16
_READS: Final = ("GET", "HEAD")


class Route:
    """What answers a path.

    is_open: whether anybody may ask. for_users: whether every user may, who need not be allowed to see figures.
    needs_token: whether the page's token is needed.
    """

    def __init__(
        self,
        answer: Callable[[Request, ClientInfo], Awaitable[Response]],
        methods: tuple[str, ...] = _READS,
        is_open: bool = False,
        for_users: bool = False,
        needs_token: bool = False,
    ) -> None:
        self.answer = answer
        self.methods = methods
        self.is_open = is_open
        self.for_users = for_users
        self.needs_token = needs_token


class Site:
    """The paths of one server. port: of MongoDB's protocol, by which people know their servers apart."""

    def __init__(self, shell: Shell, port: int, is_encrypted: bool) -> None:
        self._shell = shell
        self._port = port
        self._scheme = "https" if is_encrypted else "http"
        self._logins = Logins(shell)
        self.live = Live(shell)
        documents = Documents(shell)
        self._token = os.urandom(32).hex()
        # Another id shows a page that its server was started again.
        self._start = os.urandom(8).hex()
        # Two scrapes at once would hold other tasks up twice as long.
        self._scrapes = trio.Lock()
        advertised = shell.service.config.advertise_host
        self._known_hosts = {"localhost"} if advertised is None else {"localhost", _host(advertised)}
        self.routes: dict[str, Route] = {
            "/healthz": Route(self._health, is_open=True),
            "/readyz": Route(self._readiness, is_open=True),
            "/metrics": Route(self._metrics),
            "/": Route(self._page, for_users=True),
            "/page.css": Route(_file("page.css", "text/css; charset=utf-8"), is_open=True),
            "/page.js": Route(_file("page.js", "text/javascript; charset=utf-8"), is_open=True),
            "/documents.css": Route(_file("documents.css", "text/css; charset=utf-8"), is_open=True),
            "/documents.js": Route(_file("documents.js", "text/javascript; charset=utf-8"), is_open=True),
            "/icon.svg": Route(_file("icon.svg", "image/svg+xml"), is_open=True),
            "/live": Route(self._live, ("GET",), for_users=True),
            "/clock": Route(self._clock, ("POST",), needs_token=True),
            "/collections": Route(documents.collections, ("GET",), for_users=True),
            "/documents": Route(documents.documents, ("POST",), for_users=True, needs_token=True),
        }

    async def answer(self, request: Request) -> Response:
        """The response to a request, with the headers that all have."""
        try:
            response = await self._answer(request)
        except EngineUnavailable as error:
            self._shell.log.error("storage", "The storage engine failed", command=request.path, error=str(error))
            response = text(503, str(error))
        return response._replace(headers=(*response.headers, *SECURITY_HEADERS))

    async def _answer(self, request: Request) -> Response:
        refusal = self._foreign(request)
        if refusal is not None:
            return refusal
        route = self.routes.get(request.path)
        if route is None:
            return text(404, f"there is nothing at this path; there are {', '.join(sorted(self.routes))}")
        if request.method not in route.methods:
            return text(405, "this method is not for this path", ("Allow", ", ".join(route.methods)))
        client = ClientInfo(0, request.local, request.remote)
        if self._shell.service.authorizes and not route.is_open:
            known = await self._logins.client(request.headers.get("authorization", ""), request.local, request.remote)
            if known is None:
                return text(401, "this needs a user of the database admin and its password", _CHALLENGE)
            if not route.for_users and not self.may_view(known):
                return text(403, "the user needs the action serverStatus, which the role clusterMonitor has")
            client = known
        if route.needs_token and not self._has_token(request):
            return text(403, "this needs the token of the page; load the page again")
        return await route.answer(request, client)

    def _has_token(self, request: Request) -> bool:
        return hmac.compare_digest(request.headers.get("x-mongottl-token", "").encode(), self._token.encode())

    def may_view(self, client: ClientInfo) -> bool:
        """Whether a client may see names and figures at present."""
        return self._may(client, _VIEW)

    def _is_known(self, client: ClientInfo) -> bool:
        """Whether the client's user exists at present, where users are checked."""
        service = self._shell.service
        return not service.authorizes or (
            client.login is not None and service.accounts.grants(client.login) is not None
        )

    def _may(self, client: ClientInfo, need: Need) -> bool:
        service = self._shell.service
        if not service.authorizes:
            return True
        grants = None if client.login is None else service.accounts.grants(client.login)
        return grants is not None and grants.meets(need)

    def _foreign(self, request: Request) -> Response | None:
        """The refusal of a request for another host or from another origin; None for all others."""
        host = request.headers.get("host", "")
        if not self._is_ours(_host(host)):
            hint = "use its address, localhost, a name without dots, or that of --advertise-host"
            return text(421, f"this server does not go by that name; {hint}")
        origin = request.headers.get("origin")
        if origin is not None and origin.lower() != f"{self._scheme}://{host.lower()}":
            return text(403, "requests of pages of other origins are refused")
        if request.headers.get("sec-fetch-site", "none") in ("same-origin", "none"):
            return None
        if request.method in _READS and request.headers.get("sec-fetch-mode") == "navigate":
            return None  # a link on another page, which sees nothing of what it leads to
        return text(403, "requests of pages of other origins are refused")

    def _is_ours(self, host: str) -> bool:
        """Whether a host is not a name that others can own. host: "" for what is none."""
        if not host:
            return False
        if host in self._known_hosts or host.endswith(".localhost"):
            return True
        try:
            ipaddress.ip_address(host)
        except ValueError:
            return "." not in host and ":" not in host
        return True

    async def _health(self, request: Request, client: ClientInfo) -> Response:
        return text(200, "ok")

    async def _readiness(self, request: Request, client: ClientInfo) -> Response:
        if self._shell.stopping.is_set():
            return text(503, "stopping")
        if self._shell.service.engine.failed:
            return text(503, "the storage engine has failed; the server has to be started again")
        if self._shell.service.engine.suspends:
            try:
                asked = self._shell.service.stacks.begin(self._shell.service.engine.ping)
                await drive(asked, self._shell.clock, self._shell.durability, writes=False)
            except EngineUnavailable:
                return text(503, "the store does not answer")
        return text(200, "ok")

    async def _metrics(self, request: Request, client: ClientInfo) -> Response:
        async with self._scrapes:
            # Imported at the first scrape, in another thread: it takes 0.1 s.
            module = await trio.to_thread.run_sync(import_module, "mongottl.server.web.exposition")
            body, content_type = await module.exposition(self._shell, request.headers.get("accept", ""))
        return Response(200, content_type, body)

    async def _page(self, request: Request, client: ClientInfo) -> Response:
        page = _read("index.html").replace(b"{token}", self._token.encode())
        return Response(200, "text/html; charset=utf-8", page)

    async def _live(self, request: Request, client: ClientInfo) -> Response:
        if self.live.viewers >= MAX_VIEWERS:
            return text(503, f"{MAX_VIEWERS} are looking already")
        return Response(200, "text/event-stream", b"", (), partial(self._send_events, client))

    async def _send_events(self, client: ClientInfo, send: Send) -> None:
        """Sends events for as long as the client takes them and may see them."""
        live = self.live
        sent_schedule = 0
        sent_status = 0
        sent_points = -1
        if live.viewers >= MAX_VIEWERS:
            return  # of those who have begun at the same time, and whose status is sent
        with live.viewer():
            await send(b"retry: 1000\n\n" + _event("server", json.dumps(self._described_server(client))))
            sees = self.may_view(client)
            while self._is_known(client) and self.may_view(client) == sees:
                news = live.news
                if not sees:
                    await send(_event("status", live.time()))
                    await news.wait()
                    continue
                if sent_points < 0 or live.history.points - sent_points > 1:  # a status has one point
                    sent_points = live.history.points
                    await send(_event("history", await live.all_history()))
                    continue
                sent_points = live.history.points
                status = live.status()
                if live.status_number != sent_status:
                    sent_status = live.status_number
                    await send(_event("status", status))
                if live.schedule_number != sent_schedule and live.schedule:
                    sent_schedule = live.schedule_number
                    await send(_event("schedule", live.schedule))
                await news.wait()

    def _described_server(self, client: ClientInfo) -> dict[str, object]:
        """What does not change while the server runs. sees: whether this client may see names and figures. movable:
        whether it may move the clock."""
        service = self._shell.service
        movable = service.config.enable_test_commands and isinstance(service.clock, VirtualClock)
        return {
            "start": self._start,
            "port": self._port,
            "node": 0 if service.engine.nodes is None else service.engine.nodes.number,
            "version": VERSION,
            "serverVersion": service.config.announced_version(),
            "dialect": service.dialect.name,
            "inMemory": not service.engine.persistent,
            "compiled": is_compiled(),
            "user": "" if client.login is None else client.login.user.name,
            "sees": self.may_view(client),
            "movable": movable and self.may_view(client) and self._may(client, _MOVE),
        }

    async def _clock(self, request: Request, client: ClientInfo) -> Response:
        """`{action, seconds}` → `{nowMs, deleted, deletedIn}`.

        deleted: how many documents the reaper has deleted meanwhile, null for an action that deletes none. deletedIn:
        pairs of a collection and its share, those with the most first.
        """
        command = self._clock_command(request.body)
        if command is None:
            names = ", ".join(CLOCK_ACTIONS)
            return text(400, f'{{"action": …}} is needed, one of {names}; advance also needs a number of "seconds"')
        shown = (await shown_collections(self._shell)).collections
        before = {collection: collection.purged_documents for collection in shown}
        reply = await run_command(self._shell, client, encode({**command, "$db": "admin"}))
        if get_value(reply, "ok") != 1.0:
            status = 403 if get_value(reply, "code") == ErrorCode.Unauthorized else 400
            return text(status, str(get_value(reply, "errmsg")))
        self.live.note_clock_change()
        # Not the command's own count: what others have the reaper delete meanwhile is in those of the collections.
        shares = [
            (collection.namespace, collection.purged_documents - purged)
            for collection, purged in before.items()
            if collection.purged_documents > purged
        ]
        shares.sort(key=lambda share: -share[1])
        deletes = get_value(reply, "ttlDeleted") is not MISSING
        described = {
            "nowMs": self._shell.clock.now_ms(),
            "deleted": sum([count for _, count in shares]) if deletes else None,
            "deletedIn": shares,
        }
        return Response(200, "application/json", json.dumps(described).encode())

    def _clock_command(self, body: bytes) -> dict[str, Value] | None:
        """The command that an action stands for; None for what is none."""
        try:
            # Whole numbers as floats: those that are too large for one are then infinite.
            asked = json.loads(body, parse_int=float)
        except (ValueError, RecursionError):
            return None
        action = asked.get("action") if isinstance(asked, dict) else None
        if action == "advance":
            seconds = asked.get("seconds")
            return {"advanceClock": seconds} if isinstance(seconds, float) else None
        if action == "freeze" or action == "run":
            return {"freezeClock": action == "freeze"}
        return {"resetClock": 1} if action == "restore" else None


def _event(name: str, data: str) -> bytes:
    """One server-sent event; data: one line."""
    return f"event: {name}\ndata: {data}\n\n".encode()


def _read(name: str) -> bytes:
    """A file of the page, which is part of the package."""
    return files("mongottl.server.web").joinpath("page", name).read_bytes()


def _file(name: str, content_type: str) -> Callable[[Request, ClientInfo], Awaitable[Response]]:
    async def answer(request: Request, client: ClientInfo) -> Response:
        return Response(200, content_type, _read(name))

    return answer


def _host(host_port: str) -> str:
    """The host of `host:port`, `[address]:port`, or of either without a port, in lower case; "" for other texts."""
    match = _HOST_PORT.fullmatch(host_port.lower())
    return "" if match is None else match[1] or match[2].removesuffix(".")
