"""What a row of the tables is, and the commands that many rows use."""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import bson

from tests.drivers.answers import ABSENT, Document

VERSIONS = ("3.6", "4.0", "4.2", "5.0", "6.0", "7.0")
SINCE_4_0 = VERSIONS[1:]
SINCE_4_2 = VERSIONS[2:]
BEFORE_4_2 = VERSIONS[:2]

GUID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
SUCCESS: Document = {"ok": 1, "writeErrors": ABSENT}


class Step(NamedTuple):
    """A command on the database `shop`, or on `admin`, and what its reply has; by default it succeeds."""

    command: Document
    answer: Document = SUCCESS


class Fact(NamedTuple):
    """number: of the entry. settings: of the account, for `configureCosmos`."""

    number: int
    what: str
    steps: Sequence[Step]
    versions: Sequence[str] = VERSIONS
    settings: Document | None = None


def containing(text: str) -> re.Pattern[str]:
    """A text that has these words."""
    return re.compile(f".*{re.escape(text)}.*", re.DOTALL)


def storage_failure(text: str, substatus: int = 0) -> re.Pattern[str]:
    """The text of an error of the storage: three levels around its words, which name one request."""
    begin = r"Response status code does not indicate success: BadRequest \(400\); "
    begin += rf"Substatus: {substatus}; ActivityId: "
    again = rf"{begin}(?P=id); Reason: \("
    words = re.escape(f'Message: {{"Errors":["{text}"]}}\r\nActivityId: ')
    place = f"/apps/{GUID}/services/{GUID}/partitions/{GUID}/replicas/[0-9]{{18}}[ps]/"
    trace = "RequestStats: Microsoft.Azure.Cosmos.Tracing.TraceData.ClientSideRequestStatisticsTraceDatum"
    client = "SDK: Windows/10.0.20348 cosmos-netstandard-sdk/3.18.0"
    return re.compile(
        rf"Error=2, Details='{begin}(?P<id>{GUID}); Reason: \({again}{again}{words}(?P=id), Request URI: {place}, "
        rf"{re.escape(trace)}, {re.escape(client)}\);\);\);"
    )


def refused(code: int, name: str, text: str | re.Pattern[str]) -> Document:
    """The reply of a command that has failed."""
    return {"ok": 0.0, "code": code, "codeName": name, "errmsg": text}


def write_error(code: int, text: str | re.Pattern[str], index: int = 0) -> Document:
    """The reply to a write whose first write error this is."""
    return {"ok": 1, "writeErrors.0.index": index, "writeErrors.0.code": code, "writeErrors.0.errmsg": text}


def insert(*documents: Document, answer: Document = SUCCESS, into: str = "orders", ordered: bool = True) -> Step:
    return Step({"insert": into, "documents": list(documents), "ordered": ordered}, answer)


def update(query: Document, change: Document, answer: Document = SUCCESS, **options: Any) -> Step:
    return Step({"update": "orders", "updates": [{"q": query, "u": change, **options}]}, answer)


def delete_many(query: Document, answer: Document = SUCCESS) -> Step:
    return Step({"delete": "orders", "deletes": [{"q": query, "limit": 0}]}, answer)


def find(answer: Document = SUCCESS, **options: Any) -> Step:
    return Step({"find": "orders", **options}, answer)


def index(key: Document, answer: Document = SUCCESS, name: str | None = None, **options: Any) -> Step:
    named = "_".join(f"{path}_{kind}" for path, kind in key.items()) if name is None else name
    return Step({"createIndexes": "orders", "indexes": [{"key": key, "name": named, **options}]}, answer)


def action(name: str, answer: Document = SUCCESS, **fields: Any) -> Step:
    """An extension command."""
    return Step({"customAction": name, **fields}, answer)


def collection(answer: Document = SUCCESS, **fields: Any) -> Step:
    return action("CreateCollection", answer, collection="orders", **fields)


def fail(point: str, **data: Any) -> Step:
    """The next request fails as the fail point says."""
    return Step({"configureFailPoint": point, "mode": {"times": 1}, "data": data})


def advance(seconds: float) -> Step:
    return Step({"advanceClock": seconds})


def charged(units: float) -> Step:
    """What the last request has cost."""
    return Step({"getLastRequestStatistics": 1}, {"RequestCharge": units})


def sized(key: Any, size_bytes: int = 1024, **fields: Any) -> Document:
    """A document of exactly this length in BSON."""
    made = {"_id": key, **fields, "filler": ""}
    made["filler"] = "x" * (size_bytes - len(bson.encode(made)))
    return made
