"""The documents view in headless Chromium: what a reader chooses, sees count down, and presses."""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pymongo
import pytest

import mongottl
from mongottl.server.web import documents as view
from tests.drivers.web.conftest import SIZES
from tests.drivers.web.test_page_in_browser import CONTRAST, SCHEMES
from tests.drivers.wire_client import ask_each_node

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

Client = pymongo.MongoClient[dict[str, Any]]

pytestmark = pytest.mark.slow


def choose(page: "Page", namespace: str) -> None:
    opening = page.get_by_role("button", name="Look into a collection")
    if opening.is_visible():
        opening.click()
    page.get_by_role("combobox", name="Collection").select_option(namespace)


def said(page: "Page", text: str) -> None:
    page.locator("#documents-said").filter(has_text=text).wait_for()


def documents(page: "Page") -> "Locator":
    return page.locator(".documents li")


def ids(page: "Page") -> list[int]:
    found = [re.search(r'"_id": (\d+)', text) for text in page.locator(".documents summary").all_inner_texts()]
    return [int(one[1]) for one in found if one is not None]


def test_a_document_counts_down_and_its_button_moves_the_clock_to_its_end(
    server: mongottl.RunningServer, client: Client, show: Callable[..., "Page"]
) -> None:
    client.shop.carts.create_index("_ts", expireAfterSeconds=3600)
    client.shop.carts.insert_many([{"_id": 1, "ttl": 90}, {"_id": 2}, {"_id": 3, "ttl": -1}])
    page = show(server)
    began = server.clock.now()
    choose(page, "shop.carts")
    said(page, "3 documents, in the order of _id.")
    first, second, third = documents(page).all()
    assert first.locator(".ends").inner_text() == "expires in 1\u00a0min 30\u00a0s"
    assert third.locator(".ends").inner_text() == "never expires"
    assert third.get_by_role("button").count() == 0
    server.clock.advance(30)
    first.locator(".ends").filter(has_text=re.compile("^expires in 1\u00a0min$")).wait_for()
    second.get_by_role("button", name="Move clock to its end").click()
    said(page, "2 documents deleted: shop.carts 2. 1 document, in the order of _id.")
    assert timedelta(seconds=3599) < server.clock.now() - began <= timedelta(seconds=3600)
    assert ids(page) == [3]


def test_documents_that_are_gone_when_the_clock_is_moved_elsewhere_vanish(
    server: mongottl.RunningServer, client: Client, show: Callable[..., "Page"]
) -> None:
    client.shop.carts.create_index("_ts", expireAfterSeconds=60)
    client.shop.carts.insert_many([{"_id": 1}, {"_id": 2, "ttl": 600}])
    page = show(server)
    choose(page, "shop.carts")
    said(page, "2 documents")
    page.get_by_role("button", name="+1 min").click()
    said(page, "1 document, in the order of _id.")
    assert ids(page) == [2]
    server.clock.advance(540)
    said(page, "There is no document.")


def test_expired_documents_that_are_not_purged_are_marked(show: Callable[..., "Page"]) -> None:
    with mongottl.start_server(web_port=0, frozen=False) as server, Client(server.uri) as client:
        client.shop.carts.create_index("until", expireAfterSeconds=0)
        ask_each_node(server, {"setParameter": 1, "ttlMonitorEnabled": False})
        now = server.clock.now()
        client.shop.carts.insert_many([{"_id": number, "until": now + timedelta(hours=number)} for number in (-1, 9)])
        client.shop.carts.insert_one({"_id": 2, "until": now + timedelta(seconds=2)})
        page = show(server)
        choose(page, "shop.carts")
        said(page, "3 documents")
        page.locator(".documents li.expired").filter(has_text='"_id": 2').wait_for()
        shown = page.locator(".documents .ends").all_inner_texts()
        assert shown[0] == shown[1] == "expired" and shown[2].startswith("expires in ")
        page.context.close()


def test_pages_and_filters(
    monkeypatch: pytest.MonkeyPatch, server: mongottl.RunningServer, client: Client, show: Callable[..., "Page"]
) -> None:
    monkeypatch.setattr(view, "PAGE_DOCUMENTS", 3)
    client.shop.carts.insert_many([{"_id": number, "even": number % 2 == 0} for number in range(8)])
    page = show(server)
    choose(page, "shop.carts")
    said(page, "Page 1: 3 documents")
    assert ids(page) == [0, 1, 2]
    page.get_by_role("button", name="Next page").click()
    said(page, "Page 2: 3 documents")
    client.shop.carts.delete_many({"_id": {"$lt": 3}})
    page.get_by_role("button", name="Next page").click()
    said(page, "Page 3: 2 documents")
    assert ids(page) == [6, 7] and page.get_by_role("button", name="Next page").is_disabled()
    page.get_by_role("button", name="Page before").click()
    said(page, "Page 2: 3 documents")
    assert ids(page) == [3, 4, 5]
    page.get_by_role("button", name="First page").click()
    said(page, "Page 1: 3 documents")
    page.get_by_label("Filter in Extended JSON").fill('{"even": true}')
    page.keyboard.press("Enter")
    said(page, "2 documents, in the order of _id.")
    assert ids(page) == [4, 6]


def test_a_refusal_says_why(server: mongottl.RunningServer, client: Client, show: Callable[..., "Page"]) -> None:
    client.shop.carts.insert_one({"_id": 1})
    page = show(server)
    choose(page, "shop.carts")
    said(page, "1 document")
    for given, told in [("{a: 1}", "the filter is no JSON"), ('{"$where": "1"}', "$where runs a script")]:
        page.get_by_label("Filter in Extended JSON").fill(given)
        page.get_by_role("button", name="Show").click()
        page.locator("#documents-said.failed").filter(has_text=told).wait_for()
        assert documents(page).count() == 0


def test_names_and_values_are_text(server: mongottl.RunningServer, client: Client, show: Callable[..., "Page"]) -> None:
    name = "<img src=x onerror=alert(1)>.'\"&amp; c"
    client.shop[name].insert_one({"_id": 1, "<b>bold</b>": "</pre><script>alert(2)</script>", "\u202e": "&lt;"})
    page = show(server)
    choose(page, f"shop.{name}")
    said(page, "1 document")
    page.locator(".documents summary").click()
    text = page.locator(".documents pre").inner_text()
    assert '"<b>bold</b>": "</pre><script>alert(2)</script>"' in text and '"\\u202e": "&lt;"' in text
    assert page.locator("#documents-list b, #documents-list script, #documents-list img").count() == 0
    page.reload()
    said(page, "1 document")  # the address names the collection
    assert page.get_by_role("combobox", name="Collection").input_value() == f"shop.{name}"


def test_open_documents_stay_open_and_long_ones_are_labelled_shortened(
    server: mongottl.RunningServer, client: Client, show: Callable[..., "Page"]
) -> None:
    client.shop.carts.create_index("_ts", expireAfterSeconds=3600)
    client.shop.carts.insert_many([{"_id": 1, "text": "x" * (8 << 20)}, {"_id": 2, "ttl": 60}, {"_id": 3}])
    page = show(server)
    choose(page, "shop.carts")
    said(page, "3 documents")
    page.locator(".documents summary").first.click()
    documents(page).first.get_by_text("Shortened: the document has 8.0\u00a0MiB.").wait_for()
    documents(page).nth(1).get_by_role("button").click()
    said(page, "1 document deleted: shop.carts 1. 2 documents")
    assert documents(page).first.locator("pre").is_visible() and not documents(page).nth(1).locator("pre").is_visible()


def test_users_without_figures_see_the_documents_that_they_may_read(show: Callable[..., "Page"]) -> None:
    with mongottl.start_server(web_port=0, auth=True, user="root", password="secret") as server:
        with Client(server.uri) as client:
            client.shop.carts.create_index("_ts", expireAfterSeconds=3600)
            client.shop.carts.insert_one({"_id": 1})
            client.admin.command("createUser", "bob", pwd="secret", roles=[{"role": "read", "db": "shop"}])
        page = show(server, http_credentials={"username": "bob", "password": "secret"})
        page.locator("#lead").filter(has_text="is shown to those who may run serverStatus").wait_for()
        choose(page, "shop.carts")
        said(page, "1 document")
        assert documents(page).first.locator(".ends").inner_text() == "expires in 1\u00a0h"
        server.clock.advance(60)
        documents(page).first.locator(".ends").filter(has_text="59\u00a0min").wait_for()
        assert not page.get_by_role("button", name="Move clock to its end").is_visible()
        assert not page.get_by_role("heading", name="Operations").is_visible()
        page.context.close()


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("size", SIZES)
def test_documents_fit_and_can_be_read(
    server: mongottl.RunningServer, client: Client, show: Callable[..., "Page"], size: tuple[int, int], scheme: str
) -> None:
    long = "a_very_long_name_" * 6
    client.admin.command("profile", 0, slowms=-1)  # so that the slow commands name the long namespace
    client.shop[long].create_index("_ts", expireAfterSeconds=2_147_483_647)
    client.shop[long].insert_many([{"_id": "x" * 500, "n": 1}, {"_id": 2, "ttl": 86_399}, {"_id": 3, "ttl": -1}])
    client.shop["without_time_to_live_" * 6].insert_one({})
    page = show(server, size, scheme)
    choose(page, f"shop.{long}")
    said(page, "3 documents")
    for summary in page.locator(".documents summary").all():
        summary.click()
    documents(page).first.locator("pre").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") == size[0]
    assert page.evaluate(CONTRAST) == []
    cut = """() => [...document.querySelectorAll(".documents .ends, .documents button, #documents-pages button")]
        .filter((at) => at.checkVisibility() && at.scrollWidth > at.clientWidth + 1).map((at) => at.textContent)"""
    assert page.evaluate(cut) == []
    for at in documents(page).all():
        box, left = at.bounding_box(), at.locator(".ends").bounding_box()
        assert box is not None and left is not None
        assert box["x"] <= left["x"] and left["x"] + left["width"] <= box["x"] + box["width"] + 1
