"""A server with a page, and a client of it, for each test; and headless Chromium, which opens pages."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pymongo
import pytest

import mongottl
from tests.waiting import PATIENCE_S, until

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

SIZES = [(1280, 900), (400, 800)]


@pytest.fixture
def server() -> Iterator[mongottl.RunningServer]:
    """A server with a page of its own for each test, since a page tells of all that was done to its server."""
    with mongottl.start_server(web_port=0) as running:
        yield running


@pytest.fixture
def client(server: mongottl.RunningServer) -> Iterator["pymongo.MongoClient[dict[str, Any]]"]:
    with pymongo.MongoClient[dict[str, Any]](server.uri) as connected:
        yield connected


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    name = next((n for n in ("chromium", "chromium-browser", "google-chrome") if shutil.which(n)), None)
    if name is None:
        pytest.skip("needs Chromium: apt-get install chromium")
    playwright = pytest.importorskip("playwright.sync_api", reason="needs Playwright: pip install '.[browser]'")
    program = shutil.which(name)
    assert program is not None
    # The system may be installing it beside these tests: then it begins to work when the last of its packages is there.
    version = [program, "--version"]
    until(lambda: subprocess.run(version, capture_output=True).returncode == 0, f"{program} does not run")
    # Chromium's sandbox does not work for the superuser.
    options = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    with (
        playwright.sync_playwright() as running,
        closing(running.chromium.launch(executable_path=program, args=options, timeout=PATIENCE_S * 1000)) as browser,
    ):
        yield browser


@pytest.fixture
def show(browser: "Browser") -> Iterator[Callable[..., "Page"]]:
    """Opens the page of a server, once it has its first schedule; in the end, whether the browser had complaints."""
    complaints: list[str] = []
    contexts = []

    def open_page(
        server: mongottl.RunningServer, size: tuple[int, int] = SIZES[0], scheme: Any = "light", **options: Any
    ) -> "Page":
        context = browser.new_context(viewport={"width": size[0], "height": size[1]}, color_scheme=scheme, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE_S * 1000)
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        assert server.web_url is not None
        page.goto(server.web_url, wait_until="domcontentloaded")
        page.locator("#lead").filter(has_text=".").wait_for()
        return page

    yield open_page
    for context in contexts:
        context.close()
    # A refusal of what a reader has asked for is shown, but the browser reports it, too.
    assert [text for text in complaints if "status of 400" not in text] == []
