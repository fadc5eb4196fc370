"""Collections and views as listCollections and `$listClusterCatalog` show them."""

from typing import Final

from mongottl.catalog.catalog import Catalog
from mongottl.catalog.collection import Collection
from mongottl.catalog.index import id_index_spec
from mongottl.catalog.view import View
from mongottl.document.build import DocumentBuilder, encode, encode_fields
from mongottl.document.freeing import LongList
from mongottl.document.interrupt import give_way
from mongottl.document.types import Value
from mongottl.document.walk import ElementCursor

# What it takes to describe a collection, in the units of `give_way`.
_WORK: Final = 8


def with_namespace(spec: bytes, namespace: str) -> bytes:
    """The specification of an index as it was before MongoDB 4.4, with `ns` after its name."""
    named = DocumentBuilder()
    cursor = ElementCursor(spec, 0)
    while cursor.next():
        named.append_raw_element(cursor.raw_element())
        if cursor.name_is(b"name"):
            named.append("ns", namespace)
    return named.finish()


def describe_place(place: Collection | View, names_indexes: bool = False) -> list[tuple[str, Value]]:
    """`{name, type, options, info: {readOnly, uuid}, idIndex}`; views and time series lack the last two.

    names_indexes: whether `idIndex` has the namespace.
    """
    if isinstance(place, View):
        return [
            ("name", place.name),
            ("type", "view"),
            ("options", place.options()),
            ("info", encode({"readOnly": True})),
        ]
    if place.time_series is not None:
        return [
            ("name", place.name),
            ("type", "timeseries"),
            ("options", place.options.listed),
            ("info", encode({"readOnly": False})),
        ]
    described: list[tuple[str, Value]] = [
        ("name", place.name),
        ("type", "collection"),
        ("options", place.options.listed),
        ("info", encode({"readOnly": False, "uuid": place.uuid})),
    ]
    if place.clustering is None:
        spec = id_index_spec(place.collation)
        described.append(("idIndex", with_namespace(spec, place.namespace) if names_indexes else spec))
    return described


def describe_cluster(catalog: Catalog, databases: list[str], shards: bool) -> list[bytes]:
    """`{ns, db, type, options, info, idIndex, sharded}` of what is in these databases.

    shards: with `shards` as well, an empty array: there are none.
    """
    shown: list[bytes] = LongList()
    for name in databases:
        places: list[Collection | View] = [*catalog.collections(name), *catalog.views(name)]
        for place in places:
            give_way(_WORK)
            described: list[tuple[str, Value]] = [("ns", place.namespace), ("db", name)]
            described += [field for field in describe_place(place) if field[0] != "name"]
            described.append(("sharded", isinstance(place, Collection) and place.shard_key is not None))
            if shards:
                described.append(("shards", []))
            shown.append(encode_fields(described))
    return shown
