"""old_pymongo.py COLLECTION URI…: as node/client.js, with the PyMongo that is on the path."""

import sys
from typing import Any

import pymongo


def use(uri: str, collection: str, done: list[str]) -> None:
    client: pymongo.MongoClient[dict[str, Any]] = pymongo.MongoClient(uri)
    try:
        things = client.shop[collection]
        client.shop.command("buildInfo")
        done.append("connect")
        things.insert_many([{"_id": number, "a": number % 5} for number in range(250)])
        done.append("insert")
        assert len(list(things.find(batch_size=50))) == 250
        done.append("find")
        cursor = things.find(batch_size=10)
        next(cursor)
        cursor.close()
        done.append("close")
        things.update_many({"a": 1}, {"$set": {"b": 1}})
        assert len(list(things.find({"b": 1}))) == 50
        done.append("update")
        assert len(list(things.aggregate([{"$group": {"_id": "$a", "n": {"$sum": 1}}}]))) == 5
        done.append("aggregate")
        try:
            things.insert_one({"_id": 1})
            raise AssertionError("no error for a duplicate key")
        except pymongo.errors.DuplicateKeyError:
            done.append("duplicate")
        things.create_index("a")
        things.delete_many({"a": 1})
        things.drop()
        done.append("drop")
    finally:
        client.close()


def main() -> None:
    for uri in sys.argv[2:]:
        done: list[str] = []
        error = ""
        try:
            use(uri, sys.argv[1], done)
        except Exception as caught:
            error = " ".join(f"{type(caught).__name__} {caught}".split())
        print(f"{' '.join(done)}: {error}", flush=True)


if __name__ == "__main__":
    main()
