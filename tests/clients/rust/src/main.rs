//! Does what an application does with the server at MONGODB_URI, and prints the name of each part that has worked. The
//! first thing that does not work ends it with an error.

use std::env;
use std::io::{Read, Write};

use mongodb::bson::{doc, Bson, Document};
use mongodb::error::{Error, ErrorKind, WriteFailure, TRANSIENT_TRANSACTION_ERROR};
use mongodb::options::{
    ClientOptions, FullDocumentType, GridFsBucketOptions, IndexOptions, InsertOneModel, ReturnDocument, WriteModel,
};
use mongodb::sync::{Client, Collection};
use mongodb::{change_stream::event::OperationType, IndexModel, Namespace};
use serde::{Deserialize, Serialize};

type Outcome = Result<(), Box<dyn std::error::Error>>;

#[derive(Debug, Serialize, Deserialize)]
struct Cart {
    #[serde(rename = "_id")]
    id: i32,
    owner: String,
    items: Vec<String>,
}

fn cart(id: i32, owner: &str, items: &[&str]) -> Cart {
    Cart { id, owner: owner.to_string(), items: items.iter().map(|item| item.to_string()).collect() }
}

fn connect(client: &Client) -> Outcome {
    client.database("admin").run_command(doc! {"ping": 1}).run()?;
    let hello = client.database("admin").run_command(doc! {"hello": 1}).run()?;
    assert!(hello.get_bool("isWritablePrimary")?);
    assert_eq!(client.list_database_names().run()?, ["admin", "config", "local"]);
    Ok(())
}

fn crud(client: &Client) -> Outcome {
    let database = client.database("rust");
    let carts: Collection<Cart> = database.collection("carts");
    carts.insert_many([cart(1, "ann", &["pen"]), cart(2, "bob", &[]), cart(3, "ann", &[])]).run()?;
    let found = carts.find_one(doc! {"owner": "ann"}).run()?.unwrap();
    assert_eq!((found.id, found.items), (1, vec!["pen".to_string()]));
    let changed = carts.update_many(doc! {"owner": "ann"}, doc! {"$push": {"items": "ink"}}).run()?;
    assert_eq!((changed.matched_count, changed.modified_count), (2, 2));
    let after = carts
        .find_one_and_update(doc! {"_id": 3}, doc! {"$push": {"items": "nib"}})
        .return_document(ReturnDocument::After)
        .run()?;
    assert_eq!(after.unwrap().items, ["ink", "nib"]);
    carts.insert_many((10..1010).map(|id| cart(id, "many", &[]))).run()?;
    let mut read = 0;
    for document in carts.find(doc! {"owner": "many"}).sort(doc! {"_id": -1}).batch_size(100).run()? {
        read += 1;
        assert_eq!(document?.id, 1010 - read);
    }
    assert_eq!(read, 1000);
    let pipeline = [doc! {"$group": {"_id": "$owner", "n": {"$sum": 1}}}, doc! {"$sort": {"_id": 1}}];
    let groups: Vec<Document> = carts.aggregate(pipeline).run()?.collect::<Result<_, _>>()?;
    assert_eq!(groups, [doc! {"_id": "ann", "n": 2}, doc! {"_id": "bob", "n": 1}, doc! {"_id": "many", "n": 1000}]);
    carts.replace_one(doc! {"_id": 2}, cart(2, "eve", &[])).run()?;
    assert_eq!(carts.delete_many(doc! {"owner": "many"}).run()?.deleted_count, 1000);
    let insert = InsertOneModel::builder()
        .namespace(Namespace::new("rust", "carts"))
        .document(doc! {"_id": 4, "owner": "dan", "items": []})
        .build();
    assert_eq!(client.bulk_write([WriteModel::InsertOne(insert)]).run()?.inserted_count, 1);
    assert_eq!(carts.count_documents(doc! {}).run()?, 4);
    assert_eq!(carts.distinct("owner", doc! {}).run()?, ["ann", "dan", "eve"].map(Bson::from));
    Ok(())
}

fn ttl(client: &Client) -> Outcome {
    let coll: Collection<Document> = client.database("rust").collection("expiring");
    let ten_seconds = IndexOptions::builder().expire_after(std::time::Duration::from_secs(10)).build();
    coll.create_index(IndexModel::builder().keys(doc! {"_ts": 1}).options(ten_seconds).build()).run()?;
    coll.insert_many([doc! {"_id": 1}, doc! {"_id": 2, "ttl": 20}, doc! {"_id": 3, "ttl": -1}, doc! {"_id": 4, "ttl": 20.5}])
        .run()?;
    for left in [vec![2, 3], vec![3]] {
        client.database("admin").run_command(doc! {"advanceClock": 10}).run()?;
        assert_eq!(coll.distinct("_id", doc! {}).run()?, left.into_iter().map(Bson::from).collect::<Vec<_>>());
    }
    Ok(())
}

fn transactions(client: &Client) -> Outcome {
    let coll: Collection<Document> = client.database("rust").collection("accounts");
    let mut session = client.start_session().run()?;
    let seen = session.start_transaction().and_run(|session| {
        coll.insert_one(doc! {"_id": "ann", "balance": 10}).session(&mut *session).run()?;
        let inside = coll.count_documents(doc! {}).session(&mut *session).run()?;
        Ok((coll.count_documents(doc! {}).run()?, inside))
    })?;
    assert_eq!(seen, (0, 1));
    session.start_transaction().run()?;
    coll.delete_one(doc! {"_id": "ann"}).session(&mut session).run()?;
    session.abort_transaction().run()?;
    assert_eq!(coll.count_documents(doc! {}).run()?, 1);
    Ok(())
}

fn change_streams(client: &Client) -> Outcome {
    let coll: Collection<Document> = client.database("rust").collection("watched");
    let mut stream = coll.watch().full_document(FullDocumentType::UpdateLookup).run()?;
    coll.insert_one(doc! {"_id": 1}).run()?;
    coll.update_one(doc! {"_id": 1}, doc! {"$set": {"a": 2}}).run()?;
    coll.delete_one(doc! {"_id": 1}).run()?;
    let inserted = stream.next().unwrap()?;
    assert_eq!(inserted.operation_type, OperationType::Insert);
    let token = inserted.id;
    let updated = stream.next().unwrap()?;
    assert_eq!((updated.operation_type, updated.full_document), (OperationType::Update, None));
    let resumed = coll.watch().resume_after(token).run()?;
    let operations: Vec<_> = resumed.take(2).map(|event| event.map(|event| event.operation_type)).collect::<Result<_, _>>()?;
    assert_eq!(operations, [OperationType::Update, OperationType::Delete]);
    Ok(())
}

fn grid_fs(client: &Client) -> Outcome {
    let options = GridFsBucketOptions::builder().chunk_size_bytes(1000).build();
    let bucket = client.database("rust").gridfs_bucket(options);
    let content = b"0123456789".repeat(250);
    let mut upload = bucket.open_upload_stream("digits.txt").run()?;
    upload.write_all(&content)?;
    upload.close()?;
    let mut back = Vec::new();
    bucket.open_download_stream_by_name("digits.txt").run()?.read_to_end(&mut back)?;
    assert_eq!(back, content);
    bucket.delete(upload.id().clone()).run()?;
    assert!(bucket.find_one(doc! {}).run()?.is_none());
    Ok(())
}

/// The code and the details of the write that was refused.
fn refused(error: Error) -> (i32, Option<Document>) {
    match *error.kind {
        ErrorKind::Write(WriteFailure::WriteError(refusal)) => (refusal.code, refusal.details),
        other => panic!("expected a write error, not {other:?}"),
    }
}

fn error_shapes(client: &Client) -> Outcome {
    let database = client.database("rust");
    database.create_collection("strict").validator(doc! {"$jsonSchema": {"required": ["name"]}}).run()?;
    let coll: Collection<Document> = database.collection("strict");
    coll.insert_one(doc! {"_id": 1, "name": "ann"}).run()?;
    assert_eq!(refused(coll.insert_one(doc! {"_id": 1, "name": "bob"}).run().unwrap_err()).0, 11000);
    let (code, details) = refused(coll.insert_one(doc! {"_id": 2}).run().unwrap_err());
    assert_eq!(code, 121);
    assert_eq!(details.unwrap().get_i32("failingDocumentId")?, 2);

    let mut session = client.start_session().run()?;
    session.start_transaction().run()?;
    assert!(coll.find_one(doc! {"_id": 1}).session(&mut session).run()?.is_some());
    coll.update_one(doc! {"_id": 1}, doc! {"$set": {"n": 1}}).run()?;
    let late = coll.update_one(doc! {"_id": 1}, doc! {"$set": {"n": 2}}).session(&mut session).run().unwrap_err();
    assert!(matches!(&*late.kind, ErrorKind::Command(conflict) if conflict.code == 112), "{late:?}");
    assert!(late.contains_label(TRANSIENT_TRANSACTION_ERROR));
    session.abort_transaction().run()?;
    Ok(())
}

/// Logs in as the same user with a password that is not theirs.
fn wrong_password(uri: &str) -> Outcome {
    let mut options = ClientOptions::parse(uri).run()?;
    options.credential.as_mut().unwrap().password = Some("wrong".to_string());
    let error = Client::with_options(options)?.database("admin").run_command(doc! {"ping": 1}).run().unwrap_err();
    assert!(matches!(*error.kind, ErrorKind::Authentication { .. }), "{error:?}");
    Ok(())
}

fn main() -> Outcome {
    let uri = env::var("MONGODB_URI")?;
    let client = Client::with_uri_str(&uri)?;
    let parts: [(&str, fn(&Client) -> Outcome); 7] = [
        ("connect", connect),
        ("crud", crud),
        ("ttl", ttl),
        ("transactions", transactions),
        ("changeStreams", change_streams),
        ("gridFS", grid_fs),
        ("errorShapes", error_shapes),
    ];
    for (name, part) in parts {
        part(&client)?;
        println!("{name}");
    }
    if uri.contains('@') {
        wrong_password(&uri)?;
        println!("wrongPassword");
    }
    Ok(())
}
