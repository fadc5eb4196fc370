"""$listClusterCatalog."""

from typing import Any

import pytest
from pymongo.database import Database

from tests.drivers.refusals import refusal

Documents = dict[str, Any]


def catalog(database: Database[Documents], **options: Any) -> dict[str, Documents]:
    return {shown["ns"]: shown for shown in database.aggregate([{"$listClusterCatalog": options}])}


def test_list_cluster_catalog_lists_collections_and_views(database: Database[Documents]) -> None:
    database.create_collection("log", capped=True, size=4096)
    database.create_collection("view", viewOn="log", pipeline=[])
    shown = catalog(database)
    assert set(shown) == {f"{database.name}.{name}" for name in ("log", "view", "system.views")}
    log = shown[f"{database.name}.log"]
    assert log["db"] == database.name
    assert log["type"] == "collection"
    assert log["options"] == {"capped": True, "size": 4096}
    assert log["info"]["readOnly"] is False
    assert log["idIndex"] == {"v": 2, "key": {"_id": 1}, "name": "_id_"}
    assert log["sharded"] is False
    assert "shards" not in log
    view = shown[f"{database.name}.view"]
    assert (view["type"], view["info"], view["sharded"]) == ("view", {"readOnly": True}, False)
    assert "idIndex" not in view
    assert catalog(database, shards=True)[f"{database.name}.log"]["shards"] == []


def test_admin_sees_everything(database: Database[Documents]) -> None:
    database.c.insert_one({})
    assert f"{database.name}.c" in catalog(database.client.admin)
    assert f"{database.name}.c" not in catalog(database.client.config)
    assert catalog(database.client["none_of_this_name"]) == {}


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ({"aggregate": "c", "pipeline": [{"$listClusterCatalog": {}}]}, 9621301),
        ({"aggregate": "c", "pipeline": [{"$facet": {"x": [{"$listClusterCatalog": {}}]}}]}, 9621301),
        ({"aggregate": 1, "pipeline": [{"$listClusterCatalog": 1}]}, 9621302),
        ({"aggregate": 1, "pipeline": [{"$listClusterCatalog": {"shards": 1}}]}, 14),
        ({"aggregate": 1, "pipeline": [{"$listClusterCatalog": {"more": True}}]}, 40415),
        ({"aggregate": 1, "pipeline": [{"$documents": [{}]}, {"$listClusterCatalog": {}}]}, 40602),
    ],
    ids=str,
)
def test_list_cluster_catalog_refuses_invalid_arguments(
    database: Database[Documents], command: Documents, code: int
) -> None:
    assert refusal(database, {**command, "cursor": {}}) == code
