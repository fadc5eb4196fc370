"""Both forms of the benchmark's documents are the same, and its raw requests say what they should."""

import bson

from bench.documents import CITIES, GROUPS, Encoder, id_of, make_document, rank_of
from bench.load import op_msg, patched_request, reply_document


def test_encoded_documents_are_the_dictionaries() -> None:
    encoder = Encoder(100_000)
    options: bson.CodecOptions[dict[str, object]] = bson.CodecOptions(tz_aware=True)
    for number in (0, 1, 7, 99, 12_345, 99_999):
        assert bson.decode(encoder.encode(number), options) == make_document(number, 100_000)
    assert 100 <= encoder.size_bytes <= 200


def test_batches_hold_each_document_once_and_in_order() -> None:
    batches = list(Encoder(25).batches(10))
    assert [len(batch) for batch in batches] == [10, 10, 5]
    assert [bson.decode(raw)["_id"] for batch in batches for raw in batch] == [id_of(n) for n in range(25)]


def test_ranks_are_a_permutation() -> None:
    for count in (100, 1000, 10_000):
        ranks = [rank_of(number, count) for number in range(count)]
        assert sorted(ranks) == list(range(count))
        assert ranks != sorted(ranks)


def test_values_are_spread_evenly() -> None:
    documents = [make_document(number, 5000) for number in range(5000)]
    groups = [document["group"] for document in documents]
    cities = [document["address"]["city"] for document in documents]
    assert len(set(groups)) == GROUPS and max(groups.count(n) for n in range(GROUPS)) < 100
    assert len(set(cities)) == CITIES
    assert 2300 < sum(document["amount"] < 5000 for document in documents) < 2700


def test_patched_request_changes_the_id_and_nothing_else() -> None:
    numbers = iter([5, 6])
    request = patched_request(lambda i: {"find": "c", "filter": {"_id": i}, "$db": "d"}, lambda: next(numbers))
    first, second = reply_document(bytes(request())), reply_document(bytes(request()))
    assert first == {"find": "c", "filter": {"_id": id_of(5)}, "$db": "d"}
    assert second == {"find": "c", "filter": {"_id": id_of(6)}, "$db": "d"}


def test_document_sequences_carry_the_documents_as_they_are() -> None:
    raw = bson.encode({"a": 1})
    message = op_msg({"insert": "c"}, "documents", [raw, raw])
    assert int.from_bytes(message[:4], "little") == len(message)
    assert message.endswith(b"documents\0" + raw + raw)
    assert reply_document(message) == {"insert": "c"}
