"""`$text` uses its own stems and stop words.

Snowball's English stemmer leaves "evening" alone since its release 3; the one within MongoDB makes it "even". Source:
Snowball's news, and MongoDB's page "Text Search Languages".
"""

from typing import Any

from pymongo.database import Database


def test_evening_is_not_even(database: Database[dict[str, Any]]) -> None:
    database.c.create_index([("a", "text")])
    database.c.insert_one({"_id": 1, "a": "a quiet evening"})
    assert list(database.c.find({"$text": {"$search": "even"}})) == []
    assert database.c.count_documents({"$text": {"$search": "evenings quietly"}}) == 1


def test_stop_words_are_passed_over(database: Database[dict[str, Any]]) -> None:
    database.c.create_index([("a", "text")], default_language="german")
    database.c.insert_one({"_id": 1, "a": "das Haus und der Baum"})
    assert list(database.c.find({"$text": {"$search": "das und der"}})) == []
    assert database.c.count_documents({"$text": {"$search": "die Häuser"}}) == 1
