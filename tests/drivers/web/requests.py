"""HTTP requests to a server's page."""

import base64
import http.client
from contextlib import closing
from urllib.parse import urlsplit

import mongottl
from tests.waiting import PATIENCE_S


class Reply:
    """An HTTP response. headers: by name in lower case."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.headers = {name.lower(): value for name, value in response.getheaders()}
        self.body = response.read().decode()


def connect(server: mongottl.RunningServer) -> http.client.HTTPConnection:
    assert server.web_url is not None
    return http.client.HTTPConnection(urlsplit(server.web_url).netloc, timeout=PATIENCE_S)


def ask(
    server: mongottl.RunningServer,
    path: str,
    headers: dict[str, str] | None = None,
    method: str = "GET",
    body: bytes | None = None,
) -> Reply:
    """The response to one request on a connection of its own."""
    with closing(connect(server)) as connection:
        connection.request(method, path, body, headers or {})
        return Reply(connection.getresponse())


def basic(name: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()}
