"""The documents view over HTTP: who sees which documents, in which pages, when they expire, and what is refused."""

import base64
import json
import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import bson
import pymongo
import pytest
from bson.json_util import loads

import mongottl
from mongottl.server.web import documents as view
from tests.drivers.web.requests import Reply, ask, basic
from tests.on_nodes import own_profile

Client = pymongo.MongoClient[dict[str, Any]]
Page = dict[str, Any]
SHOP = {"database": "shop", "collection": "carts"}


def token_of(server: mongottl.RunningServer, headers: dict[str, str] | None = None) -> str:
    found = re.search(r'name="mongottl-token" content="([0-9a-f]{64})"', ask(server, "/", headers).body)
    assert found is not None
    return found[1]


def post(server: mongottl.RunningServer, asked: object, headers: dict[str, str] | None = None) -> Reply:
    given = {"X-Mongottl-Token": token_of(server, headers), **(headers or {})}
    return ask(server, "/documents", given, "POST", json.dumps(asked).encode())


def page_of(server: mongottl.RunningServer, headers: dict[str, str] | None = None, **asked: object) -> Page:
    reply = post(server, {**SHOP, **asked}, headers)
    assert reply.status == 200, reply.body
    page: Page = json.loads(reply.body)
    return page


def refusal(server: mongottl.RunningServer, headers: dict[str, str] | None = None, **asked: object) -> tuple[int, str]:
    reply = post(server, {**SHOP, **asked}, headers)
    assert reply.status != 200
    return reply.status, reply.body.removesuffix("\n")


def pages_of(server: mongottl.RunningServer, **asked: object) -> Iterator[Page]:
    """All pages, one after the other."""
    following = None
    while True:
        page = page_of(server, None, **asked, page=following)
        yield page
        following = page["next"]
        if following is None:
            return


def texts(page: Page) -> list[str]:
    return [document["text"] for document in page["documents"]]


def documents(page: Page) -> list[Any]:
    return [loads(text) for text in texts(page)]


def collections(server: mongottl.RunningServer, headers: dict[str, str] | None = None) -> list[tuple[str, str, str]]:
    reply = ask(server, "/collections", headers)
    assert reply.status == 200
    listed = json.loads(reply.body)
    assert listed["complete"] is True
    return [(one["database"], one["collection"], one["type"]) for one in listed["collections"]]


# What is shown


def test_collections_and_views_by_name(server: mongottl.RunningServer, client: Client) -> None:
    client.shop.carts.insert_one({})
    client.shop.create_collection("large", viewOn="carts", pipeline=[{"$match": {"size": {"$gt": 5}}}])
    client.app["a.b c/ü"].insert_one({})
    shown = [one for one in collections(server) if one[0] in ("app", "shop") and one[1] != "system.views"]
    assert shown == [
        ("app", "a.b c/ü", "collection"),
        ("shop", "carts", "collection"),
        ("shop", "large", "view"),
    ]
    assert documents(page_of(server, database="app", collection="a.b c/ü"))[0].keys() == {"_id"}


def test_only_so_many_collections_are_listed(
    monkeypatch: pytest.MonkeyPatch, server: mongottl.RunningServer, client: Client
) -> None:
    monkeypatch.setattr(view, "MAX_LISTED", 3)
    for database in ("a", "b"):
        for number in range(2):
            client[database][f"c{number}"].insert_one({})
    listed = json.loads(ask(server, "/collections").body)
    assert [one["collection"] for one in listed["collections"]] == ["c0", "c1", "c0"]
    assert listed["complete"] is False


def test_a_filter_in_extended_json(server: mongottl.RunningServer, client: Client) -> None:
    wanted = bson.ObjectId()
    client.shop.carts.insert_many([{"_id": wanted, "n": 1}, {"n": bson.Int64(2)}, {"n": "2"}])
    assert documents(page_of(server, filter=f'{{"_id": {{"$oid": "{wanted}"}}}}')) == [{"_id": wanted, "n": 1}]
    assert [one["n"] for one in documents(page_of(server, filter='{"n": {"$gte": {"$numberLong": "2"}}}'))] == [2]
    assert [one["n"] for one in documents(page_of(server, filter='{"n": {"$type": "string"}}'))] == ["2"]
    assert len(documents(page_of(server, filter=" "))) == 3
    assert documents(page_of(server, filter='{"n": 3}')) == [] == documents(page_of(server, collection="none"))


def test_a_refused_filter_is_answered_with_the_server_s_text(server: mongottl.RunningServer, client: Client) -> None:
    client.shop.carts.insert_one({})
    assert refusal(server, filter='{"a": {"$nonsense": 1}}') == (400, "unknown operator: $nonsense")
    for given, told in [
        ("{a: 1}", "the filter is no JSON: Expecting property name enclosed in double quotes at character 2"),
        ("[]", "the filter has to be an object"),
        ('{"$oid": "0123456789abcdef01234567"}', "the filter has to be an object"),
        ('{"_id": {"$oid": "5"}}', "the filter is no Extended JSON: '5' is not a valid ObjectId"),
        ('{"a": NaN}', "the filter is no Extended JSON: NaN is no JSON"),
        ('{"a\\u0000": 1}', "the filter is no Extended JSON: the name of a field may not contain a null character"),
        ('{"a": ' * 190 + "1" + "}" * 190, "the filter is refused: "),
        ('{"a": ' * 1200 + "1" + "}" * 1200, "the filter "),
        ('{"a": "\\ud800"}', "the filter is no Extended JSON: "),
    ]:
        status, message = refusal(server, filter=given)
        assert status == 400 and told in message
    assert documents(page_of(server, filter='{"a": ' * 90 + "1" + "}" * 90)) == []


@pytest.mark.parametrize(
    "given",
    [
        '{"$where": "sleep(1000)"}',
        '{"$or": [{"a": 1}, {"$and": [{"$where": "true"}]}]}',
        '{"$expr": {"$function": {"body": "function() {}", "args": [], "lang": "js"}}}',
        '{"$expr": {"$gt": [1, {"$sum": [{"$accumulator": {}}]}]}}',
        '{"\\u0024where": "true"}',
    ],
)
def test_scripts_are_refused(server: mongottl.RunningServer, client: Client, given: str) -> None:
    client.shop.carts.insert_one({})
    status, message = refusal(server, filter=given)
    assert status == 400 and message.endswith("runs a script, which this page does not")


def test_views_and_their_time_to_live(server: mongottl.RunningServer, client: Client) -> None:
    """What a view computes is stored nowhere, and does not expire."""
    client.shop.carts.create_index("_ts", expireAfterSeconds=60)
    client.shop.carts.insert_many([{"_id": number} for number in range(50)])
    client.shop.create_collection("twice", viewOn="carts", pipeline=[{"$project": {"_id": 0, "n": "$_id"}}])
    found = list(pages_of(server, collection="twice", filter='{"n": {"$gte": 5}}'))
    assert [one["n"] for page in found for one in documents(page)] == list(range(5, 50))
    assert all(not page["ordered"] for page in found)
    assert {one["dueMs"] for page in found for one in page["documents"]} == {None}


def test_when_documents_expire(server: mongottl.RunningServer, client: Client) -> None:
    client.shop.carts.create_index("_ts", expireAfterSeconds=3600)
    client.shop.carts.create_index("until", expireAfterSeconds=10)
    client.shop.carts.create_index("gone", expireAfterSeconds=0, partialFilterExpression={"state": "old"})
    now = server.clock.now()
    second = int(now.timestamp())
    client.shop.carts.insert_many(
        [
            {"_id": 1},
            {"_id": 2, "ttl": 5},
            {"_id": 3, "ttl": -1},
            {"_id": 4, "until": now + timedelta(seconds=60)},
            {"_id": 5, "ttl": 30, "until": [now + timedelta(hours=9), now + timedelta(seconds=60)]},
            {"_id": 6, "ttl": -1, "until": "soon"},
            {"_id": 7, "ttl": -1, "gone": now + timedelta(seconds=9)},
            {"_id": 8, "ttl": -1, "gone": now + timedelta(seconds=9), "state": "old"},
        ]
    )
    due = [one["dueMs"] for one in page_of(server)["documents"]]
    date_s = -(-round(now.timestamp() * 1000) // 1000)  # of a date milliseconds count, up to the next whole second
    expected = [3600 + second, 5 + second, None, 70 + date_s, 30 + second, None, None, 9 + date_s]
    assert due == [None if at is None else at * 1000 for at in expected]
    client.shop.carts.drop_indexes()
    assert {one["dueMs"] for one in page_of(server)["documents"]} == {None}


def test_a_write_prolongs_what_is_shown(server: mongottl.RunningServer, client: Client) -> None:
    client.shop.carts.create_index("_ts", expireAfterSeconds=60)
    client.shop.carts.insert_one({"_id": 1})
    (before,) = page_of(server)["documents"]
    server.clock.advance(59)
    client.shop.carts.update_one({"_id": 1}, {"$set": {"n": 1}})
    (after,) = page_of(server)["documents"]
    assert after["dueMs"] - before["dueMs"] == 59_000
    server.clock.advance(60)
    assert page_of(server)["documents"] == []


def test_measurements_of_a_time_series_expire(server: mongottl.RunningServer, client: Client) -> None:
    client.shop.create_collection("carts", timeseries={"timeField": "at"}, expireAfterSeconds=60)
    now = server.clock.now().replace(microsecond=0) + timedelta(seconds=5)
    client.shop.carts.insert_many([{"at": now, "n": number} for number in range(30)])
    found = list(pages_of(server))
    assert sorted(one["n"] for page in found for one in documents(page)) == list(range(30))
    assert {one["dueMs"] for page in found for one in page["documents"]} == {int(now.timestamp() + 60) * 1000}


# Pages


IDS: list[Any] = [
    bson.MinKey(),
    None,
    float("nan"),
    float("-inf"),
    -5,
    bson.Decimal128("-1.5"),
    0.5,
    bson.Int64(2**60),
    float("inf"),
    "",
    "NaN",
    "a",
    "é",
    {},
    {"a": 1},
    {"a": "x"},
    {"b": None},
    b"",
    b"abc",
    bson.Binary(b"abc", 128),
    bson.ObjectId("0" * 24),
    bson.ObjectId("f" * 24),
    False,
    True,
    bson.datetime_ms.DatetimeMS(-5),
    bson.datetime_ms.DatetimeMS(5),
    bson.Timestamp(1, 1),
    bson.Timestamp(2, 1),
    bson.DBRef("c", 5),
    bson.Code("a"),
    bson.Code("a", {"x": 1}),
    bson.MaxKey(),
]


@pytest.mark.parametrize("dialect", ["mongodb", "cosmos"])
@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_pages_of_ids_of_all_types(monkeypatch: pytest.MonkeyPatch, dialect: Any, size: int) -> None:
    monkeypatch.setattr(view, "PAGE_DOCUMENTS", size)
    with mongottl.start_server(web_port=0, dialect=dialect) as server, Client(server.uri) as client:
        client.shop.carts.insert_many([{"_id": one, "n": place} for place, one in enumerate(IDS)])
        expected = [one["n"] for one in client.shop.carts.find({}, {"_id": 0, "n": 1}).sort("_id")]
        found = list(pages_of(server))
        assert [one["n"] for page in found for one in documents(page)] == expected
        assert [len(page["documents"]) for page in found[:-1]] == [size] * (len(found) - 1)
        assert found[-1]["documents"] and all(page["ordered"] for page in found)
        some = [one["n"] for page in pages_of(server, filter='{"n": {"$mod": [3, 0]}}') for one in documents(page)]
        assert some == [number for number in expected if number % 3 == 0]


def test_pages_under_a_collation(
    monkeypatch: pytest.MonkeyPatch, server: mongottl.RunningServer, client: Client
) -> None:
    monkeypatch.setattr(view, "PAGE_DOCUMENTS", 2)
    client.shop.create_collection("carts", collation={"locale": "en", "strength": 2})
    client.shop.carts.create_index("_ts", expireAfterSeconds=60)
    client.shop.carts.insert_many([{"_id": one} for one in ("B", "a", "D", "c", 5, True)])
    found = list(pages_of(server))
    assert [one["_id"] for page in found for one in documents(page)] == [5, "a", "B", "c", "D", True]
    assert all(one["dueMs"] for page in found for one in page["documents"])


@own_profile
def test_pages_of_what_has_no_ids(server: mongottl.RunningServer, client: Client) -> None:
    client.shop.command("profile", 2)
    for number in range(45):
        client.shop.carts.insert_one({"_id": number})
    client.shop.command("profile", 0)
    oplog = [one for page in pages_of(server, database="local", collection="oplog.rs") for one in documents(page)]
    assert [one["o"]["_id"] for one in oplog if one["op"] == "i" and one["ns"] == "shop.carts"] == list(range(45))
    profile = [text for page in pages_of(server, collection="system.profile") for text in texts(page)]
    assert len({text for text in profile if '"op": "insert"' in text}) == 45 <= len(profile) == len(set(profile))


def test_pages_are_not_shifted_by_writes(
    monkeypatch: pytest.MonkeyPatch, server: mongottl.RunningServer, client: Client
) -> None:
    monkeypatch.setattr(view, "PAGE_DOCUMENTS", 3)
    client.shop.carts.create_index("_ts", expireAfterSeconds=3600)
    client.shop.carts.insert_many([{"_id": number, "ttl": 5 if number < 12 else 3600} for number in range(10, 20)])
    first = page_of(server)
    assert [one["_id"] for one in documents(first)] == [10, 11, 12]
    client.shop.carts.insert_many([{"_id": number} for number in range(5)])
    client.shop.carts.delete_many({"_id": {"$in": [12, 13]}})
    server.clock.advance(5)
    assert [one["_id"] for one in documents(page_of(server, page=first["next"]))] == [14, 15, 16]
    assert [one["_id"] for one in documents(page_of(server))] == [0, 1, 2]


def test_pages_of_ids_that_are_not_unique(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view, "PAGE_DOCUMENTS", 2)
    with mongottl.start_server(web_port=0, dialect="cosmos") as server, Client(server.uri) as client:
        client.shop.command({"customAction": "CreateCollection", "collection": "carts", "shardKey": "tenant"})
        client.shop.carts.create_index("_ts", expireAfterSeconds=60)
        wanted = [{"_id": place, "tenant": tenant} for place in (1, 2, "x") for tenant in ("a", "b", "c", "d", "e")]
        client.shop.carts.insert_many([dict(one) for one in wanted])
        found = [one for page in pages_of(server) for one in documents(page)]
        assert [one["_id"] for one in found] == [1] * 5 + [2] * 5 + ["x"] * 5
        assert sorted(map(str, found)) == sorted(map(str, wanted))
        assert all(one["dueMs"] for one in page_of(server)["documents"])


def test_pages_behind_ids_that_are_too_long_to_be_named(
    monkeypatch: pytest.MonkeyPatch, server: mongottl.RunningServer, client: Client
) -> None:
    monkeypatch.setattr(view, "PAGE_DOCUMENTS", 2)
    ids: list[Any] = [f"{number}" * 20_000 for number in range(7)]
    client.shop.carts.insert_many([{"_id": one, "n": place} for place, one in enumerate([5, "0", *ids, "8", True])])
    found = list(pages_of(server, filter='{"n": {"$gte": 0}}'))
    assert [int(re.findall(r'"n": (\d+)', text)[0]) for page in found for text in texts(page)] == list(range(11))


@pytest.mark.parametrize(
    "page",
    [5, "", "%%%", "AAAA", base64.b64encode(bson.encode({"skip": -1})).decode()]
    + [
        base64.b64encode(bson.encode(one)).decode()
        for one in ({"skip": bson.Int64(-1)}, {"skip": bson.Int64(0), "x": 1})
    ],
)
def test_invalid_page_tokens_are_refused(server: mongottl.RunningServer, page: object) -> None:
    assert refusal(server, page=page) == (400, "there is no such page")


@pytest.mark.parametrize("after", [{"$where": "1"}, ["a"], bson.Regex("a"), {"$gt": 1}])
def test_a_page_behind_what_is_no_id_is_empty_or_refused(
    server: mongottl.RunningServer, client: Client, after: object
) -> None:
    client.shop.carts.insert_many([{"_id": number} for number in range(3)])
    place = base64.b64encode(bson.encode({"skip": bson.Int64(0), "after": after})).decode()
    assert page_of(server, page=place)["documents"] == []


# Limits


def test_a_long_document_is_shortened(server: mongottl.RunningServer, client: Client) -> None:
    client.shop.carts.insert_many(
        [
            {"_id": 1, "text": "x" * (8 << 20), "after": 5},
            {"_id": 2, "numbers": list(range(500_000)), "after": 5},
            {"_id": 3, "data": b"\0" * (8 << 20), "after": 5},
            {"_id": 4, "short": True},
        ]
    )
    reply = post(server, SHOP)
    assert len(reply.body) < 64 * 1024
    shown = [one for page in pages_of(server) for one in page["documents"]]
    assert [one["shortened"] for one in shown] == [True, True, True, False]
    assert shown[0]["sizeBytes"] > 8 << 20 and "… /* 8,388,608 bytes */" in shown[0]["text"].replace('"', "")
    assert '"after": 5' in shown[0]["text"] and '"after": 5' in shown[2]["text"]
    assert shown[1]["text"].endswith("…\n  ]\n}") or "…" in shown[1]["text"]
    assert shown[3]["text"] == '{"_id": 4, "short": true}'


def test_a_page_of_long_documents_has_fewer_of_them(server: mongottl.RunningServer, client: Client) -> None:
    client.shop.carts.insert_many([{"_id": number, "lines": ["x" * 900] * 50} for number in range(30)])
    found = list(pages_of(server))
    ids = [int(re.findall(r'"_id": (\d+)', text)[0]) for page in found for text in texts(page)]
    assert ids == list(range(30)) and len(found) > 2
    assert all(sum(map(len, texts(page))) < view.PAGE_CHARACTERS + 2 * view.DOCUMENT_CHARACTERS for page in found)


def test_no_cursor_stays_open(server: mongottl.RunningServer, client: Client) -> None:
    client.shop.carts.insert_many([{"_id": number, "text": "x" * (6 << 20)} for number in range(5)])
    found = list(pages_of(server))
    assert [len(page["documents"]) for page in found] == [2, 2, 1]  # as many as fit into a reply
    assert client.admin.command("serverStatus")["metrics"]["cursor"]["open"]["total"] == 0


def test_a_filter_that_takes_too_long_is_ended(
    monkeypatch: pytest.MonkeyPatch, server: mongottl.RunningServer, client: Client
) -> None:
    monkeypatch.setattr(view, "MAX_TIME_MS", 50)
    client.shop.carts.insert_many([{"x": list(range(100))} for _ in range(200)])
    slow = {"$expr": {"$gt": [0, {"$reduce": {"input": {"$range": [0, 10**7]}, "initialValue": 0, "in": "$$this"}}]}}
    status, message = refusal(server, filter=json.dumps(slow))
    assert status == 400 and "exceeded time limit" in message


@pytest.mark.parametrize(
    "asked",
    [
        None,
        [],
        {},
        {"database": "shop"},
        {"database": 5, "collection": "carts"},
        {**SHOP, "filter": {}},
        {**SHOP, "nonsense": 1},
        {"database": "", "collection": "carts"},
        {"database": "a.b", "collection": "carts"},
        {"database": "shop", "collection": ""},
        {"database": "shop", "collection": "a\0b"},
        {"database": "shop", "collection": "\ud800"},
        {"database": "\ud800", "collection": "carts"},
    ],
)
def test_invalid_document_requests_are_refused(server: mongottl.RunningServer, asked: object) -> None:
    reply = post(server, asked)
    assert reply.status == 400 and len(reply.body) > 1


def test_a_request_may_not_be_larger_than_a_filter_needs(server: mongottl.RunningServer) -> None:
    assert post(server, {**SHOP, "filter": json.dumps({"x": {"$in": ["y" * 100] * 100}})}).status == 200
    assert post(server, {**SHOP, "filter": json.dumps({"x": "y" * 16_384})}).status == 413


# Who may


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"},
        {"Host": "evil.example"},
    ],
)
def test_pages_of_other_origins_see_no_documents(server: mongottl.RunningServer, headers: dict[str, str]) -> None:
    given = {"X-Mongottl-Token": token_of(server), **headers}
    assert ask(server, "/documents", given, "POST", json.dumps(SHOP).encode()).status in (403, 421)
    if "Sec-Fetch-Mode" not in headers:
        assert ask(server, "/collections", headers).status in (403, 421)


def test_documents_need_the_token_of_the_page(server: mongottl.RunningServer) -> None:
    body = json.dumps(SHOP).encode()
    assert ask(server, "/documents", {}, "POST", body).status == 403
    assert ask(server, "/documents", {"X-Mongottl-Token": "0" * 64}, "POST", body).status == 403
    assert ask(server, "/documents", {"X-Mongottl-Token": token_of(server)}).status == 405


@pytest.fixture(scope="module")
def guarded() -> Iterator[mongottl.RunningServer]:
    with mongottl.start_server(web_port=0, auth=True, user="root", password="secret") as server:
        with Client(server.uri) as client:
            client.shop.carts.insert_one({"_id": "cart"})
            client.shop.orders.insert_one({"_id": "order"})
            client.other.c.insert_one({"_id": "other"})
            client.admin.command(
                "createRole",
                "readsCarts",
                privileges=[{"resource": {"db": "shop", "collection": "carts"}, "actions": ["find"]}],
                roles=[],
            )
            client.admin.command("createUser", "ann", pwd="secret", roles=["clusterMonitor"])
            client.admin.command("createUser", "bob", pwd="secret", roles=["readsCarts"])
            client.admin.command("createUser", "eve", pwd="secret", roles=[{"role": "read", "db": "shop"}])
        yield server


def test_users_see_what_they_may_read_by_a_driver(guarded: mongottl.RunningServer) -> None:
    bob, eve, ann = (basic(name, "secret") for name in ("bob", "eve", "ann"))
    assert collections(guarded, bob) == [("shop", "carts", "collection")]
    assert collections(guarded, eve) == [("shop", "carts", "collection"), ("shop", "orders", "collection")]
    assert documents(page_of(guarded, bob)) == [{"_id": "cart"}]
    assert refusal(guarded, bob, collection="orders")[0] == 403
    assert refusal(guarded, eve, database="other", collection="c")[0] == 403
    status, message = refusal(guarded, ann)
    assert status == 403 and message.startswith("not authorized on shop to execute command")


def test_nothing_is_shown_without_a_login(guarded: mongottl.RunningServer) -> None:
    token = token_of(guarded, basic("bob", "secret"))
    assert ask(guarded, "/collections").status == 401
    reply = ask(guarded, "/documents", {"X-Mongottl-Token": token}, "POST", json.dumps(SHOP).encode())
    assert reply.status == 401 and "cart" not in reply.body


def test_refusals_of_the_dialect_cosmos_are_shown() -> None:
    with mongottl.start_server(web_port=0, dialect="cosmos") as server, Client(server.uri) as client:
        client.shop.carts.insert_many([{"_id": number} for number in range(3)])
        assert [one["_id"] for one in documents(page_of(server))] == [0, 1, 2]
        assert ("shop", "carts", "collection") in collections(server)
        with pytest.raises(pymongo.errors.OperationFailure) as refused:
            client.shop.carts.find_one({"$jsonSchema": {}})
        assert refused.value.details is not None
        told = refusal(server, filter='{"$jsonSchema": {}}')[1]
        assert re.sub(r"[0-9a-f-]{36}", "", told) == re.sub(r"[0-9a-f-]{36}", "", str(refused.value.details["errmsg"]))
        with server.throttle("find", times=1):
            assert "16500" in refusal(server)[1]
