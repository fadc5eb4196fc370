"""Collections and views as listCollections and `$listClusterCatalog` show them."""

from mongottl.catalog.catalog import Catalog
from mongottl.catalog.collection import Collection
from mongottl.catalog.index import id_index_spec
from mongottl.catalog.view import View
from mongottl.document.build import encode, encode_fields
from mongottl.document.types import Value


def describe_place(place: Collection | View) -> list[tuple[str, Value]]:
    """`{name, type, options, info: {readOnly, uuid}, idIndex}`; views and time series lack the last two."""
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
        described.append(("idIndex", id_index_spec(place.collation)))
    return described


def describe_cluster(catalog: Catalog, databases: list[str], shards: bool) -> list[bytes]:
    """`{ns, db, type, options, info, idIndex, sharded}` of what is in these databases.

    shards: with `shards` as well, an empty array: there are none.
    """
    shown: list[bytes] = []
    for name in databases:
        places: list[Collection | View] = [*catalog.collections(name), *catalog.views(name)]
        for place in places:
            described: list[tuple[str, Value]] = [("ns", place.namespace), ("db", name)]
            described += [field for field in describe_place(place) if field[0] != "name"]
            described.append(("sharded", isinstance(place, Collection) and place.shard_key is not None))
            if shards:
                described.append(("shards", []))
            shown.append(encode_fields(described))
    return shown
