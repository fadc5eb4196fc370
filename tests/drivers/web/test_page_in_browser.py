"""The page in headless Chromium: what a reader sees, hears and presses.

Playwright's Python package drives the Chromium of the system; without either of them these tests are skipped.
"""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pymongo
import pytest

import mongottl
from mongottl.server.web import live
from mongottl.storage.errors import EngineUnavailable
from tests.drivers.web.conftest import SIZES
from tests.drivers.wire_client import ask_each_node
from tests.on_nodes import own_page, whole_budget
from tests.waiting import PATIENCE_S

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

Client = pymongo.MongoClient[dict[str, Any]]
SCHEMES = ["light", "dark"]

pytestmark = [pytest.mark.slow, own_page]


def row(page: "Page", name: str) -> "Locator":
    return page.get_by_role("table", name="Documents by when they expire").get_by_role("row").filter(has_text=name)


def cells(page: "Page", name: str) -> list[str]:
    """When the next one expires, how many have expired, expire in the next minute, hour and day, later, and never, how
    many were deleted, and by which rule."""
    return [text.strip() for text in row(page, name).get_by_role("cell").all_inner_texts()]


def wait_for(page: "Page", name: str, column: int, text: str) -> None:
    row(page, name).get_by_role("cell").nth(column).filter(has_text=text).wait_for()


def fill(server: mongottl.RunningServer, client: Client) -> None:
    client.shop.carts.create_index("_ts", expireAfterSeconds=3600)
    client.shop.carts.insert_many([{"ttl": seconds} for seconds in (30, 40, 90, 100_000)] + [{}, {"ttl": -1}])
    client.shop.coupons.create_index("until", expireAfterSeconds=0)
    client.shop.coupons.insert_one({"until": server.clock.now() + timedelta(hours=3)})
    client.shop.products.insert_one({})


def test_a_reader_sees_what_expires_when(
    server: mongottl.RunningServer, client: Client, show: Callable[..., "Page"]
) -> None:
    fill(server, client)
    page = show(server)
    assert page.locator("#lead").inner_text() == "2 documents expire within a minute, 4 within an hour."
    carts = row(page, "carts")
    assert carts.get_by_role("rowheader").inner_text() == "shop.carts"
    assert carts.get_by_role("rowheader").get_attribute("title") == "shop.carts: 6 documents, 177\u00a0B"
    rule = "1\u00a0h after the last write"
    assert cells(page, "carts") == ["30\u00a0s", "0", "2", "2", "0", "1", "1", "0", rule]
    assert cells(page, "coupons") == ["3\u00a0h", "0", "0", "0", "1", "0", "0", "0", "at the date in until"]
    assert page.get_by_text("Without time to live: shop.products (1 document).").is_visible()
    client.shop.carts.insert_one({"ttl": 50})
    wait_for(page, "carts", 2, "3")


def name_of(number: int) -> str:
    return f"c{number:02}"


def shown_names(page: "Page") -> list[str]:
    headers = page.get_by_role("table", name="Documents by when they expire").get_by_role("rowheader")
    return [name.removeprefix("shop.") for name in headers.all_inner_texts()]


@pytest.mark.parametrize("size", [(1280, 800), (400, 800)])
def test_thirty_collections_are_on_one_screen(
    server: mongottl.RunningServer, client: Client, show: Callable[..., "Page"], size: tuple[int, int]
) -> None:
    for number in range(30):
        client.shop[name_of(number)].create_index("_ts", expireAfterSeconds=1000 - number)
        client.shop[name_of(number)].insert_one({})
    page = show(server, size)
    assert shown_names(page) == [name_of(number) for number in reversed(range(30))]
    table = page.get_by_role("table", name="Documents by when they expire")
    assert table.evaluate("(at) => at.getBoundingClientRect().height") <= 800
    assert not page.locator("#fold").is_visible()


def test_collections_that_expire_later_are_folded_until_the_reader_unfolds_them(
    server: mongottl.RunningServer, client: Client, show: Callable[..., "Page"]
) -> None:
    for number in range(60):
        client.shop[name_of(number)].create_index("_ts", expireAfterSeconds=1000 + number)
        client.shop[name_of(number)].insert_one({})
    page = show(server, (1280, 800))
    first = shown_names(page)
    assert 25 <= len(first) < 60 and first == [name_of(number) for number in range(len(first))]
    fold = page.get_by_role("button", name=f"{60 - len(first)} more collections")
    assert fold.get_attribute("aria-expanded") == "false"
    fold.focus()
    page.keyboard.press("Enter")
    assert fold.get_attribute("aria-expanded") == "true"
    assert shown_names(page) == [name_of(number) for number in range(60)]
    # What expires next moves up, and an element that was there stays the same.
    page.evaluate("document.querySelector('#more-rows tr:last-child').dataset.kept = 'yes'")
    client.shop[name_of(59)].insert_one({"ttl": 30})
    page.locator("#rows tr:first-child").filter(has_text=name_of(59)).wait_for()
    assert page.locator("#rows tr:first-child").get_attribute("data-kept") == "yes"
    assert shown_names(page) == [name_of(59), *[name_of(number) for number in range(59)]]
    assert page.evaluate("document.activeElement.id") == "fold" and fold.get_attribute("aria-expanded") == "true"
    page.keyboard.press("Space")
    assert shown_names(page) == [name_of(59), *first[:-1]]
    page.set_viewport_size({"width": 1280, "height": 400})
    page.locator("#fold").filter(has_text=re.compile(r"^4\d more")).wait_for()


def test_an_empty_server_says_how_to_begin(server: mongottl.RunningServer, show: Callable[..., "Page"]) -> None:
    page = show(server)
    assert page.locator("#lead").inner_text() == "Nothing expires here."
    assert "createIndex({_ts: 1}, {expireAfterSeconds: 3600})" in page.locator("pre").inner_text()
    assert page.get_by_role("button", name="Next expiry").is_disabled()
    assert not page.get_by_role("table", name="Documents by when they expire").is_visible()
    assert not page.get_by_role("heading", name="Request units").is_visible()


def test_the_buttons_move_the_clock_and_one_sees_what_goes(
    server: mongottl.RunningServer, client: Client, show: Callable[..., "Page"]
) -> None:
    fill(server, client)
    page = show(server)
    began = server.clock.now()
    assert page.title() == f"{urlsplit(server.uri).port} mongottl"
    said = page.locator("#said")
    page.get_by_role("button", name="Next expiry").click()
    said.filter(has_text="1 document deleted: shop.carts 1.").wait_for()
    assert timedelta(seconds=29) < server.clock.now() - began <= timedelta(seconds=30)
    wait_for(page, "carts", 7, "1")
    page.get_by_role("button", name="+1 h").click()
    said.filter(has_text="3 documents deleted: shop.carts 3.").wait_for()
    page.get_by_label("Seconds to move the clock by").fill("-3600")
    page.get_by_role("button", name="Move").click()
    said.filter(has_text="Moved back by 1\u00a0h. Nothing was deleted.").wait_for()
    freeze = page.get_by_role("button", name="Freeze")
    assert freeze.get_attribute("aria-pressed") == "true"
    freeze.click()
    page.locator("#freeze[aria-pressed=false]").wait_for()
    page.get_by_role("button", name="Restore").click()
    said.filter(has_text="as it was at the start").wait_for()
    page.locator("#freeze[aria-pressed=true]").wait_for()
    assert abs(server.clock.now() - began) < timedelta(seconds=20)


def test_a_move_that_is_refused_says_why(server: mongottl.RunningServer, show: Callable[..., "Page"]) -> None:
    page = show(server)
    page.get_by_label("Seconds to move the clock by").fill("1e15")
    page.keyboard.press("Enter")
    page.locator("#said.failed").filter(has_text="not be between the years 1970 and 9999").wait_for()


def test_the_page_works_by_keyboard_alone(
    server: mongottl.RunningServer, client: Client, show: Callable[..., "Page"]
) -> None:
    fill(server, client)
    page = show(server)
    began = server.clock.now()
    reached = []
    for _ in range(11):
        page.keyboard.press("Tab")
        focused = page.evaluate("""() => {
            const at = document.activeElement, style = getComputedStyle(at);
            return [at.id || at.textContent || at.getAttribute("aria-label"), style.outlineStyle]
        }""")
        assert focused[1] == "solid", focused  # the focus can be seen
        reached.append(focused[0])
    assert reached[:9] == ["to-next", "+1 min", "+1 h", "+1 day", "by", "Move", "freeze", "restore", "timeline"]
    page.locator("#to-next").focus()
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    page.locator("#said").filter(has_text="Moved by 1\u00a0min").wait_for()
    assert server.clock.now() - began == timedelta(seconds=60)
    assert page.evaluate("document.activeElement.textContent") == "+1 min"  # rows are changed in place
    page.get_by_role("spinbutton").fill("0.25")
    page.keyboard.press("Enter")
    page.locator("#said").filter(has_text="Moved by 250\u00a0ms. Nothing was deleted.").wait_for()


def test_page_shows_running_and_slow_operations(
    server: mongottl.RunningServer, client: Client, show: Callable[..., "Page"]
) -> None:
    client.shop.other.insert_one({})
    page = show(server)
    # The server has counted what ran before.
    page.locator("#latencies tr").filter(has_text="insert").wait_for()
    since = r"\d+\ss since the server was started"
    note = page.locator("#line-note").filter(has_text=re.compile(f"^In {since}: [1-9][\\d.,]* at most$"))
    note.wait_for()
    assert re.fullmatch(f"Time of commands in {since}", page.locator("#latencies-note").inner_text())
    client.shop.command("profile", 0, slowms=0)
    client.shop.c.insert_one({"_id": "<b>bold</b>"})
    client.shop.c.delete_one({"name": "<img src=x onerror=alert(2)>"})
    client.shop.c.delete_one({"name": "<img src=x onerror=alert(1)>"})
    client.shop.command("profile", 0, slowms=100)
    for _ in range(2):
        with pytest.raises(pymongo.errors.OperationFailure):
            client.shop.c.find_one({"$nonsense<b>": 1})
    failed = page.locator("#failed-rows li").filter(has_text="$nonsense<b>")
    failed.filter(has_text=re.compile("^2\\s*find shop.c\\s*BadValue")).wait_for()
    removed = page.locator("#slow-rows li").filter(has_text="<img src=x onerror=alert(1)>")
    removed.filter(has_text=re.compile(r"2 times, at most [\d.,]+\s?")).wait_for()
    page.locator("#latencies tr").filter(has_text="insert").wait_for()
    assert page.locator("#figures div").filter(has_text="Connections").locator("dd").inner_text()[0] != "0"


def test_names_are_text(server: mongottl.RunningServer, client: Client, show: Callable[..., "Page"]) -> None:
    name = "<script>alert(1)</script>"
    client.shop[name].create_index("_ts", expireAfterSeconds=60)
    page = show(server)
    assert f"shop.{name}" in row(page, name).get_by_role("rowheader").inner_text()


def test_request_units_of_the_dialect_cosmos(show: Callable[..., "Page"]) -> None:
    with mongottl.start_server(web_port=0, dialect="cosmos") as server, Client(server.uri) as client:
        client.shop.c.insert_one({"_id": 1})
        with server.throttle("find", times=1), pytest.raises(pymongo.errors.OperationFailure):
            client.shop.c.find_one()
        page = show(server)
        page.get_by_role("heading", name="Request units").wait_for()
        page.locator("#charges-lead").filter(has_text="1 statement refused").wait_for()
        assert page.locator("#charge-rows tr").filter(has_text="insert").inner_text().split()[-2] == "RU"
        page.context.close()


@whole_budget
def test_request_units_against_the_budget(show: Callable[..., "Page"]) -> None:
    with (
        mongottl.start_server(web_port=0, dialect="cosmos", cosmos_throughput="enforced") as server,
        Client(server.uri) as client,
    ):
        with pytest.raises(pymongo.errors.OperationFailure, match="16500"):
            for _ in range(1000):
                client.shop.carts.insert_one({"text": "x"})
        client.shop.other.insert_one({})
        page = show(server)
        budget = page.locator("#budgets > div").filter(has_text="shop.carts")
        budget.filter(has_text="throttled in 1 second").wait_for()
        assert "of 400 RU/s" in budget.inner_text()
        assert re.search(r"40\d(\.\d+)? RU in \d+\ss since the server was started", budget.inner_text())
        marks = budget.locator("path").first.get_attribute("d")
        assert marks is not None and marks.count("M") == 1
        assert budget.get_by_role("img", name="Request units a second of shop.carts, and its budget").is_visible()
        # What was spent most of comes first.
        assert page.locator("#budgets b").all_inner_texts() == ["shop.carts", "shop.other"]
        assert "statements were throttled" in page.locator("#budgets-note").inner_text()
        page.context.close()


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("size", SIZES)
def test_ten_minutes_of_a_busy_server_fit(show: Callable[..., "Page"], size: tuple[int, int], scheme: str) -> None:
    with mongottl.start_server(web_port=0, dialect="cosmos") as server, Client(server.uri) as client:
        client.shop.c.insert_one({})
        page = show(server, size, scheme)
        page.locator("#budgets b").first.wait_for()
        page.evaluate(TEN_BUSY_MINUTES)
        assert page.locator("#budgets > div").count() == 6
        assert page.locator("#line-note").inner_text() == "In the last 10\u00a0min: 987,654 at most"
        note = page.locator("#budgets > div").first.locator("p").last.inner_text()
        most = "20,000 in a second at most"
        assert note == f"6,000,000 RU in the last 10\u00a0min, {most}; throttled in 300 seconds"
        assert "Of other budgets 6,000,000 RU were spent" in page.locator("#budgets-note").inner_text()
        assert "Deleted by TTL in the last 10\u00a0min: 600,000 documents" in page.locator("#deleted-note").inner_text()
        assert page.evaluate("document.documentElement.scrollWidth") == size[0]
        assert page.evaluate(CONTRAST) == []
        page.context.close()


def test_a_refusal_has_what_helps_beneath_its_text(show: Callable[..., "Page"]) -> None:
    """Options and indexes are not broken at the end of a line, so that they can be read and copied."""
    advice = (
        "No index serves this sort: create the index {'a.b': 1}, or allow it with --cosmos-allow sort-without-index."
    )
    with mongottl.start_server(web_port=0, dialect="cosmos") as server, Client(server.uri) as client:
        client.shop.orders.insert_one({})
        for filter in ({}, {"$nonsense": 1}):
            with pytest.raises(pymongo.errors.OperationFailure):
                list(client.shop.orders.find(filter).sort("a.b"))
        page = show(server, SIZES[-1])
        refused = page.locator("#failed-rows li").filter(has_text="order-by item")
        assert refused.locator(".advice").inner_text() == advice
        codes = refused.locator(".advice code")
        assert codes.all_inner_texts() == ["{'a.b': 1}", "--cosmos-allow sort-without-index"]
        for code in codes.all():
            line = code.evaluate("element => parseFloat(getComputedStyle(element).lineHeight)")
            box = code.bounding_box()
            assert box is not None and box["height"] < 1.5 * line
        assert page.locator("#failed-rows li").filter(has_text="$nonsense").locator(".advice").count() == 0
        page.context.close()


def test_a_server_that_stops_is_reported(browser: "Browser") -> None:
    """Wherever the reader is on a long page, whose time and countdowns then stand still."""
    with mongottl.start_server(web_port=0, frozen=False) as server, Client(server.uri) as client:
        for number in range(20):
            client.shop[f"c{number}"].create_index("_ts", expireAfterSeconds=60)
        page = browser.new_page()
        page.set_default_timeout(PATIENCE_S * 1000)
        page.clock.install()
        assert server.web_url is not None
        page.goto(server.web_url, wait_until="domcontentloaded")
        page.get_by_text("Live, every second.").wait_for()
        row(page, "c19").wait_for()
        shown = page.locator("#time")
        before = shown.inner_text()
        page.clock.fast_forward(10_000)
        page.wait_for_function("(before) => document.getElementById('time').innerText !== before", arg=before)
    lost = page.get_by_text("No connection to the server; trying again.")
    lost.wait_for()
    is_shown = "(at) => { const {top, bottom} = at.getBoundingClientRect(); return top >= 0 && bottom <= innerHeight; }"
    for place in (0, 300, 100_000):
        page.evaluate("(place) => scrollTo(0, place)", place)
        assert lost.evaluate(is_shown)
    before = shown.inner_text()
    page.clock.fast_forward(10_000)
    page.clock.run_for(1000)
    assert shown.inner_text() == before
    page.close()


def test_the_page_is_loaded_again_when_the_server_was_started_again(browser: "Browser") -> None:
    page = browser.new_page()
    page.set_default_timeout(PATIENCE_S * 1000)
    with mongottl.start_server(web_port=0) as server:
        assert server.web_url is not None
        page.goto(server.web_url, wait_until="domcontentloaded")
        page.get_by_text("Live, every second.").wait_for()
    port = int(server.web_url.rstrip("/").rpartition(":")[2])
    with mongottl.start_server(web_port=port) as again:
        began = again.clock.now()
        page.wait_for_event("load")
        page.get_by_role("button", name="+1 h").click()
        page.locator("#said").filter(has_text="Moved by 1").wait_for()
        assert again.clock.now() - began == timedelta(hours=1)
    page.close()


def test_users_log_in_and_see_what_they_may(show: Callable[..., "Page"]) -> None:
    with mongottl.start_server(web_port=0, auth=True, user="root", password="secret") as server:
        with Client(server.uri) as client:
            client.admin.command("createUser", "ann", pwd="secret", roles=["clusterMonitor"])
        root = show(server, http_credentials={"username": "root", "password": "secret"})
        root.get_by_role("button", name="Freeze").wait_for()
        ann = show(server, http_credentials={"username": "ann", "password": "secret"})
        ann.locator("#server").filter(has_text="seen by ann").wait_for()
        assert not ann.get_by_role("button", name="Freeze").is_visible()
        root.context.close()
        ann.context.close()


TEN_BUSY_MINUTES = """() => {
    events.close();
    const seconds = (value) => Array.from({length: 600}, (_, second) => value(second));
    const holders = ["shop.carts", "an_application.a_collection_with_a_long_name", "i", "a.b", "c.d", "e.f", "g.h"];
    past = {...past, operations: seconds((at) => at === 5 ? 987654 : at), deleted: seconds(() => 1000),
        budgets: holders.map((holder) => ({holder, units: seconds((at) => at % 2 ? 20000 : 0),
            throttled: seconds((at) => at % 2), provisioned: seconds((at) => at < 300 ? 10000 : 18000)}))};
    showOperations({perSecond: null, latencies: [], latenciesS: 60});
    showDeleted();
    showBudgets(true);
}"""
CUT = """() => [...document.querySelectorAll("#timeline td, #timeline tbody th, button")]
    .filter((at) => at.checkVisibility() && at.scrollWidth > at.clientWidth + 1).map((at) => at.textContent)"""
CONTRAST = """() => {
    const light = (text) => {
        const parts = text.match(/[\\d.]+/g).slice(0, 3).map((part) => part / 255);
        const [r, g, b] = parts.map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const behind = (at) => {
        for (; at; at = at.parentElement) {
            const color = getComputedStyle(at).backgroundColor;
            if (!color.startsWith("rgba(0, 0, 0, 0")) return color;
        }
    };
    const found = [];
    for (const at of document.querySelectorAll("body *")) {
        const own = [...at.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
        if (!own || !at.checkVisibility() || at.closest(".unseen")) continue;
        const pair = [light(getComputedStyle(at).color), light(behind(at))].sort((a, b) => a - b);
        const ratio = (pair[1] + 0.05) / (pair[0] + 0.05);
        if (ratio < 4.5) found.push(`${at.textContent.trim()}: ${ratio.toFixed(1)}`);
    }
    return found;
}"""


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("number", [99_999, 123_456_789])
def test_large_figures_fit(
    server: mongottl.RunningServer, client: Client, show: Callable[..., "Page"], size: tuple[int, int], number: int
) -> None:
    client.shop.carts.create_index("_ts", expireAfterSeconds=60)
    page = show(server, size)
    page.evaluate(
        """(number) => { const row = schedule.collections[0];
            for (const name of ["minute", "hour", "day"]) row[name] = row[name].map((_, place) => place ? 0 : number);
            Object.assign(row, {expired: number, later: number, purged: number, documents: 5 * number});
            events.close(); showSchedule({...schedule, omitted: 5, omittedExpiring: 2}); }""",
        number,
    )
    wanted = "99,999" if number < 100_000 else "123M"
    assert cells(page, "carts")[1:6] == [wanted] * 5 and cells(page, "carts")[7] == wanted
    assert row(page, "carts").get_by_role("cell").nth(7).get_attribute("title") == (
        "" if number < 100_000 else f"{number:,}"
    )
    assert page.evaluate("document.documentElement.scrollWidth") == size[0]
    assert page.evaluate(CUT) == []
    others = " 2 more collections, of which nothing expires sooner, are not counted."
    assert page.locator("#lead").inner_text().endswith(others)


@pytest.mark.parametrize("size", SIZES)
def test_long_times_fit(
    server: mongottl.RunningServer, client: Client, show: Callable[..., "Page"], size: tuple[int, int]
) -> None:
    client.shop.carts.create_index("_ts", expireAfterSeconds=2_147_483_647)
    page = show(server, size)
    page.evaluate("events.close()")
    for wait_s, text in [
        (3599, "59\u00a0min 59\u00a0s"),
        (86_399, "23\u00a0h 59\u00a0min"),
        (99 * 86_400 + 82_800, "99 days 23\u00a0h"),
        (2_147_483_647, "24,855 days"),
    ]:
        page.evaluate(
            """(waitMs) => { schedule.collections[0].nextDueMs = clock.nowMs + waitMs;
                clock.frozen = true; showSchedule(schedule); }""",
            1000 * wait_s,
        )
        assert cells(page, "carts")[0] == text
        assert page.evaluate(CUT) == []
        assert page.evaluate("document.documentElement.scrollWidth") == size[0]


@pytest.mark.parametrize("size", SIZES)
def test_request_units_fit(server: mongottl.RunningServer, show: Callable[..., "Page"], size: tuple[int, int]) -> None:
    page = show(server, size)
    for name in ("shop.sessions", "an_application.a_collection_with_a_long_name"):
        page.evaluate(
            """(namespace) => { events.close();
                const row = {command: "aggregate", namespace, requests: 1234, charge: 12345.67, throttled: 999};
                showCharges({total: 12345.67, requests: 1234, throttled: 999, rows: [row]}); }""",
            name,
        )
        table = page.get_by_role("region", name="Request units by command and namespace")
        assert table.evaluate("(at) => at.scrollWidth <= at.clientWidth")


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("size", SIZES)
def test_page_fits_the_window_with_enough_contrast(
    server: mongottl.RunningServer, client: Client, show: Callable[..., "Page"], size: tuple[int, int], scheme: str
) -> None:
    fill(server, client)
    client.shop["a_very_long_name_" * 6].create_index("_ts", expireAfterSeconds=60)
    ask_each_node(server, {"setParameter": 1, "ttlMonitorEnabled": False})
    server.clock.advance(60)
    page = show(server, size, scheme)
    assert cells(page, "carts")[1] == "2"
    assert "2 are expired and not deleted yet, the oldest for 30\u00a0s" in page.locator("#lead").inner_text()
    assert page.evaluate("document.documentElement.scrollWidth") == size[0]
    assert page.evaluate(CONTRAST) == []
    is_dark = page.evaluate("getComputedStyle(document.documentElement).backgroundColor") == "rgb(23, 21, 19)"
    assert is_dark == (scheme == "dark")
    # What has expired is told from what has not by more than its colour.
    assert "gradient" in page.evaluate("getComputedStyle(document.querySelector('.past')).backgroundImage")
    assert page.evaluate(CUT) == []


def test_page_says_why_figures_cannot_be_read(
    show: Callable[..., "Page"], server: mongottl.RunningServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> None:
        raise EngineUnavailable("disk I/O error")

    client.shop.c.insert_one({})
    page = show(server)
    lead, state = page.locator("#lead"), page.locator("#state")
    with monkeypatch.context() as broken:
        broken.setattr(live, "read_collection", fail)
        broken.setattr(live, "oplog_window_s", fail)
        lead.filter(has_text="What expires when cannot be read: disk I/O error.").wait_for()
        state.filter(has_text="What runs cannot be read: disk I/O error.").wait_for()
    lead.filter(has_text="Nothing expires here.").wait_for()
    state.filter(has_text="Live, every second.").wait_for()


def test_the_clock_is_not_moved_before_its_time_is_known(
    show: Callable[..., "Page"], server: mongottl.RunningServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> None:
        raise EngineUnavailable("disk I/O error")

    fill(server, client)
    with monkeypatch.context() as broken:
        broken.setattr(live, "oplog_window_s", fail)
        page = show(server)
        assert page.get_by_role("button", name="Next expiry").is_disabled()
    page.locator("#to-next:enabled").wait_for()
