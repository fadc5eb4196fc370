import static com.mongodb.client.model.Filters.eq;
import static com.mongodb.client.model.Updates.push;
import static com.mongodb.client.model.Updates.set;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import com.mongodb.ConnectionString;
import com.mongodb.ErrorCategory;
import com.mongodb.MongoClientSettings;
import com.mongodb.MongoCommandException;
import com.mongodb.MongoCredential;
import com.mongodb.MongoException;
import com.mongodb.MongoGridFSException;
import com.mongodb.MongoSecurityException;
import com.mongodb.MongoWriteException;
import com.mongodb.client.ClientSession;
import com.mongodb.client.MongoChangeStreamCursor;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoClients;
import com.mongodb.client.MongoCollection;
import com.mongodb.client.MongoDatabase;
import com.mongodb.client.gridfs.GridFSBucket;
import com.mongodb.client.gridfs.GridFSBuckets;
import com.mongodb.client.model.Accumulators;
import com.mongodb.client.model.Aggregates;
import com.mongodb.client.model.CreateCollectionOptions;
import com.mongodb.client.model.DeleteManyModel;
import com.mongodb.client.model.FindOneAndUpdateOptions;
import com.mongodb.client.model.IndexOptions;
import com.mongodb.client.model.Indexes;
import com.mongodb.client.model.InsertOneModel;
import com.mongodb.client.model.ReplaceOneModel;
import com.mongodb.client.model.ReturnDocument;
import com.mongodb.client.model.Sorts;
import com.mongodb.client.model.ValidationOptions;
import com.mongodb.client.model.changestream.ChangeStreamDocument;
import com.mongodb.client.model.changestream.FullDocument;
import com.mongodb.client.model.changestream.OperationType;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.FileInputStream;
import java.io.InputStream;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;
import org.bson.BsonDocument;
import org.bson.Document;
import org.bson.types.ObjectId;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** What an application does with the server at MONGODB_URI. MONGODB_CA: the file of its certificate authority, if any. */
class ApplicationTest {
    private static final String URI = System.getenv("MONGODB_URI");
    private static MongoClientSettings settings;
    private static MongoClient client;
    private static MongoDatabase database;

    @BeforeAll
    static void connect() throws Exception {
        assumeTrue(URI != null, "MONGODB_URI names no server");
        MongoClientSettings.Builder builder = MongoClientSettings.builder()
                .applyConnectionString(new ConnectionString(URI))
                .applyToClusterSettings(cluster -> cluster.serverSelectionTimeout(2, TimeUnit.MINUTES));
        String authority = System.getenv("MONGODB_CA");
        if (authority != null) {
            SSLContext trusting = contextThatTrusts(authority);
            builder.applyToSslSettings(ssl -> ssl.enabled(true).context(trusting));
        }
        settings = builder.build();
        client = MongoClients.create(settings);
        database = client.getDatabase("java");
    }

    private static SSLContext contextThatTrusts(String authority) throws Exception {
        KeyStore trusted = KeyStore.getInstance(KeyStore.getDefaultType());
        trusted.load(null, null);
        try (InputStream file = new FileInputStream(authority)) {
            trusted.setCertificateEntry("ca", CertificateFactory.getInstance("X.509").generateCertificate(file));
        }
        TrustManagerFactory factory = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        factory.init(trusted);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(null, factory.getTrustManagers(), null);
        return context;
    }

    @AfterAll
    static void disconnect() {
        if (client != null) {
            client.close();
        }
    }

    @Test
    void connects() {
        assertEquals(1.0, client.getDatabase("admin").runCommand(new Document("ping", 1)).get("ok"));
        Document hello = client.getDatabase("admin").runCommand(new Document("hello", 1));
        assertTrue(hello.getBoolean("isWritablePrimary"));
        assertTrue(client.listDatabaseNames().into(new ArrayList<>()).containsAll(List.of("admin", "config", "local")));
    }

    @Test
    void crud() {
        MongoCollection<Document> carts = database.getCollection("carts");
        carts.insertMany(List.of(
                new Document("_id", 1).append("owner", "ann").append("items", List.of("pen")),
                new Document("_id", 2).append("owner", "bob").append("items", List.of()),
                new Document("_id", 3).append("owner", "ann").append("items", List.of())));
        assertEquals(List.of("pen"), carts.find(eq("owner", "ann")).first().getList("items", String.class));
        assertEquals(2, carts.updateMany(eq("owner", "ann"), push("items", "ink")).getModifiedCount());
        Document after = carts.findOneAndUpdate(eq("_id", 3), push("items", "nib"),
                new FindOneAndUpdateOptions().returnDocument(ReturnDocument.AFTER));
        assertEquals(List.of("ink", "nib"), after.getList("items", String.class));
        carts.insertMany(IntStream.range(10, 1010)
                .mapToObj(id -> new Document("_id", id).append("owner", "many").append("total", id % 10)).toList());
        List<Document> read =
                carts.find(eq("owner", "many")).sort(Sorts.descending("_id")).batchSize(100).into(new ArrayList<>());
        assertEquals(1000, read.size());
        assertEquals(1009, read.get(0).get("_id"));
        List<Document> groups = carts.aggregate(List.of(
                Aggregates.match(eq("owner", "many")),
                Aggregates.group("$total", Accumulators.sum("n", 1)))).into(new ArrayList<>());
        assertEquals(10, groups.size());
        assertEquals(100, groups.get(0).get("n"));
        var bulk = carts.bulkWrite(List.of(
                new ReplaceOneModel<>(eq("_id", 2), new Document("owner", "eve")),
                new InsertOneModel<>(new Document("_id", 4).append("owner", "dan")),
                new DeleteManyModel<>(eq("owner", "many"))));
        assertEquals(List.of(1, 1, 1000), List.of(bulk.getModifiedCount(), bulk.getInsertedCount(), bulk.getDeletedCount()));
        assertEquals(4, carts.countDocuments());
        assertEquals(List.of("ann", "dan", "eve"), carts.distinct("owner", String.class).into(new ArrayList<>()));
    }

    @Test
    void ttl() {
        MongoCollection<Document> coll = database.getCollection("expiring");
        coll.createIndex(Indexes.ascending("_ts"), new IndexOptions().expireAfter(10L, TimeUnit.SECONDS));
        coll.insertMany(List.of(
                new Document("_id", 1), new Document("_id", 2).append("ttl", 20),
                new Document("_id", 3).append("ttl", -1L), new Document("_id", 4).append("ttl", 20.5)));
        for (List<Integer> left : List.of(List.of(2, 3), List.of(3))) {
            client.getDatabase("admin").runCommand(new Document("advanceClock", 10));
            assertEquals(left, coll.distinct("_id", Integer.class).into(new ArrayList<>()));
        }
    }

    @Test
    void transactions() {
        MongoCollection<Document> coll = database.getCollection("accounts");
        try (ClientSession session = client.startSession()) {
            List<Long> seen = session.withTransaction(() -> {
                coll.insertOne(session, new Document("_id", "ann").append("balance", 10));
                return List.of(coll.countDocuments(), coll.countDocuments(session));
            });
            assertEquals(List.of(0L, 1L), seen);
            session.startTransaction();
            coll.deleteOne(session, eq("_id", "ann"));
            session.abortTransaction();
        }
        assertEquals(1, coll.countDocuments());
    }

    @Test
    void changeStreams() {
        MongoCollection<Document> coll = database.getCollection("watched");
        BsonDocument token;
        try (MongoChangeStreamCursor<ChangeStreamDocument<Document>> stream =
                coll.watch().fullDocument(FullDocument.UPDATE_LOOKUP).cursor()) {
            coll.insertOne(new Document("_id", 1));
            coll.updateOne(eq("_id", 1), set("a", 2));
            coll.deleteOne(eq("_id", 1));
            ChangeStreamDocument<Document> inserted = stream.next();
            assertEquals(OperationType.INSERT, inserted.getOperationType());
            token = inserted.getResumeToken();
            ChangeStreamDocument<Document> updated = stream.next();
            assertEquals(OperationType.UPDATE, updated.getOperationType());
            assertNull(updated.getFullDocument());
        }
        try (var stream = coll.watch().resumeAfter(token).cursor()) {
            assertEquals(OperationType.UPDATE, stream.next().getOperationType());
            assertEquals(OperationType.DELETE, stream.next().getOperationType());
        }
    }

    @Test
    void gridFS() {
        GridFSBucket bucket = GridFSBuckets.create(database).withChunkSizeBytes(1000);
        byte[] content = "0123456789".repeat(250).getBytes();
        ObjectId id = bucket.uploadFromStream("digits.txt", new ByteArrayInputStream(content));
        ByteArrayOutputStream back = new ByteArrayOutputStream();
        bucket.downloadToStream("digits.txt", back);
        assertArrayEquals(content, back.toByteArray());
        bucket.delete(id);
        assertThrows(MongoGridFSException.class, () -> bucket.downloadToStream(id, back));
    }

    @Test
    void errorShapes() {
        Document schema = new Document("$jsonSchema", new Document("required", List.of("name")));
        database.createCollection("strict",
                new CreateCollectionOptions().validationOptions(new ValidationOptions().validator(schema)));
        MongoCollection<Document> coll = database.getCollection("strict");
        coll.insertOne(new Document("_id", 1).append("name", "ann"));
        var duplicate = assertThrows(MongoWriteException.class,
                () -> coll.insertOne(new Document("_id", 1).append("name", "bob")));
        assertEquals(ErrorCategory.DUPLICATE_KEY, duplicate.getError().getCategory());
        var invalid = assertThrows(MongoWriteException.class, () -> coll.insertOne(new Document("_id", 2)));
        assertEquals(121, invalid.getCode());
        assertEquals(2, invalid.getError().getDetails().getInt32("failingDocumentId").getValue());
        try (ClientSession session = client.startSession()) {
            session.startTransaction();
            coll.find(session, eq("_id", 1)).first();
            coll.updateOne(eq("_id", 1), set("n", 1));
            var conflict = assertThrows(MongoCommandException.class,
                    () -> coll.updateOne(session, eq("_id", 1), set("n", 2)));
            assertEquals(112, conflict.getErrorCode());
            assertTrue(conflict.hasErrorLabel(MongoException.TRANSIENT_TRANSACTION_ERROR_LABEL));
            session.abortTransaction();
        }
    }

    @Test
    void wrongPassword() {
        MongoCredential login = settings.getCredential();
        assumeTrue(login != null, "the server has no users");
        MongoClientSettings wrong = MongoClientSettings.builder(settings)
                .credential(MongoCredential.createCredential(login.getUserName(), login.getSource(), "wrong".toCharArray()))
                .build();
        try (MongoClient other = MongoClients.create(wrong)) {
            assertThrows(MongoSecurityException.class,
                    () -> other.getDatabase("admin").runCommand(new Document("ping", 1)));
        }
    }
}
