"""Which files belong to which collection, what is not read, and what is refused."""

from pathlib import Path

import bson
import pytest

from mongottl.dump.errors import DumpError
from mongottl.dump.folder import DumpFolder


def make(folder: Path, *names: str) -> Path:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}" if "metadata" in name else "")
    return folder


def test_files_are_put_together_by_name(tmp_path: Path) -> None:
    make(tmp_path, "shop/a.bson", "shop/a.metadata.json", "shop/b.json", "shop/v.metadata.json", "logs/c.ndjson")
    folder = DumpFolder(tmp_path)
    found = {
        files.namespace: (files.documents and files.documents.name, files.metadata and files.metadata.path.name)
        for files in folder.collections
    }
    assert found == {
        "logs.c": ("c.ndjson", None),
        "shop.a": ("a.bson", "a.metadata.json"),
        "shop.b": ("b.json", None),
        "shop.v": (None, "v.metadata.json"),
    }
    assert list(found) == sorted(found)
    assert (folder.outside, folder.not_read) == ([], [])


def test_files_without_a_folder_are_of_the_database_test(tmp_path: Path) -> None:
    folder = DumpFolder(make(tmp_path, "a.jsonl", "b.bson", "b.metadata.json"))
    assert [files.namespace for files in folder.collections] == ["test.a", "test.b"]
    assert [path.name for path in folder.outside] == ["a.jsonl", "b.bson", "b.metadata.json"]


def test_names_are_unescaped_and_long_ones_are_in_the_metadata(tmp_path: Path) -> None:
    make(tmp_path, "d/a%2Fb%20%C3%BC.c.json", "d/short%24hash.bson")
    (tmp_path / "d/short%24hash.metadata.json").write_text('{"collectionName": "a very long name", "indexes": []}')
    assert [files.name for files in DumpFolder(tmp_path).collections] == ["a very long name", "a/b ü.c"]


def test_dump_folder_lists_files_that_are_not_loaded(tmp_path: Path) -> None:
    make(tmp_path, "prelude.json", "shop/prelude.json.gz", "config/x.bson", "local/y.bson", ".DS_Store", "shop/.keep")
    make(tmp_path, "admin/system.version.bson", "admin/system.users.bson")
    folder = DumpFolder(tmp_path)
    assert [files.namespace for files in folder.collections] == ["admin.system.users"]
    names = ["admin/system.version.bson", "config", "local", "shop/prelude.json.gz", "prelude.json"]
    assert [str(path.relative_to(tmp_path)) for path in folder.not_read] == names


@pytest.mark.parametrize(
    ("names", "what"),
    [
        (("shop/README.md",), r"shop/README\.md: neither \.bson, \.json, \.jsonl, \.ndjson nor \.metadata\.json"),
        (("shop/.bson/x",), ""),
        (("shop/deep/a.json",), "deep: a folder within the folder of a database"),
        (("oplog.bson",), r"oplog\.bson: the oplog of a dump is not replayed; use mongorestore"),
        (("oplog.bson.gz",), r"oplog\.bson\.gz: the oplog of a dump is not replayed"),
        (("shop/a.bson", "shop/a.json"), r"a\.bson and .*a\.json are both for collection a of database shop"),
        (("shop/a.bson", "shop/a.bson.gz"), "are both for collection a"),
        (("a.json", "test/a.json"), "are both for test.a"),
        (("shop/system.buckets.t.bson",), "the buckets of a time series collection are not loaded"),
        (("shop/$admin.system.users.bson",), "users and roles of a single database are not loaded"),
        (("shop/%ff.json",), "its name is not escaped UTF-8"),
    ],
)
def test_everything_else_is_refused_by_name(tmp_path: Path, names: tuple[str, ...], what: str) -> None:
    make(tmp_path, *names)
    if not what:
        assert DumpFolder(tmp_path).collections == []
        return
    with pytest.raises(DumpError, match=what):
        DumpFolder(tmp_path)


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(DumpError, match="there is no such folder"):
        DumpFolder(tmp_path / "x")
    make(tmp_path, "x")
    with pytest.raises(DumpError, match="x: not a folder"):
        DumpFolder(tmp_path / "x")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "one object is needed, not 0"),
        ("{}{}", "one object is needed, not 2"),
        ('{"index": []}', "there is no index in the metadata of a collection"),
        ('{"indexes": [1]}', "the value of indexes has the wrong type"),
        ('{"options": 1}', "the value of options has the wrong type"),
        ("{", "line 1: "),
    ],
)
def test_faults_of_metadata(tmp_path: Path, text: str, what: str) -> None:
    (tmp_path / "a.metadata.json").write_text(text)
    with pytest.raises(DumpError, match=what):
        DumpFolder(tmp_path)


def test_metadata_as_mongodump_writes_it(tmp_path: Path) -> None:
    (tmp_path / "a.metadata.json").write_text(
        '{"options":{"capped":true,"size":{"$numberInt":"4096"}},"indexes":[{"v":{"$numberInt":"2"},"key":{"_id":'
        '{"$numberInt":"1"}},"name":"_id_"}],"uuid":"0123","collectionName":"a","type":"collection"}'
    )
    [files] = DumpFolder(tmp_path).collections
    assert files.metadata is not None
    assert bson.decode(files.metadata.options) == {"capped": True, "size": 4096}
    assert [bson.decode(index)["name"] for index in files.metadata.indexes] == ["_id_"]
