import com.mongodb.MongoClient;
import com.mongodb.MongoClientURI;
import com.mongodb.MongoWriteException;
import com.mongodb.client.MongoCollection;
import com.mongodb.client.MongoCursor;
import com.mongodb.client.MongoDatabase;
import com.mongodb.client.model.Filters;
import com.mongodb.client.model.Updates;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.logging.Level;
import java.util.logging.Logger;
import org.bson.Document;

/** Client COLLECTION URI…: as node/client.js, with the Java driver on the class path, of version 3.x. */
public final class Client {
    public static void main(String[] arguments) {
        Logger.getLogger("org.mongodb.driver").setLevel(Level.OFF);
        for (String uri : Arrays.asList(arguments).subList(1, arguments.length)) {
            List<String> done = new ArrayList<>();
            String error = "";
            try (MongoClient client = new MongoClient(new MongoClientURI(uri))) {
                use(client.getDatabase("shop"), arguments[0], done);
            } catch (Exception caught) {
                error = caught.toString().replaceAll("\\s+", " ");
            }
            System.out.println(String.join(" ", done) + ": " + error);
        }
        System.exit(0);
    }

    private static void use(MongoDatabase database, String name, List<String> done) {
        MongoCollection<Document> things = database.getCollection(name);
        database.runCommand(new Document("buildInfo", 1));
        done.add("connect");
        List<Document> documents = new ArrayList<>();
        for (int number = 0; number < 250; number++) {
            documents.add(new Document("_id", number).append("a", number % 5));
        }
        things.insertMany(documents);
        done.add("insert");
        check(things.find().batchSize(50).into(new ArrayList<>()).size() == 250, "not all found");
        done.add("find");
        try (MongoCursor<Document> cursor = things.find().batchSize(10).iterator()) {
            cursor.next();
        }
        done.add("close");
        things.updateMany(Filters.eq("a", 1), Updates.set("b", 1));
        check(things.find(Filters.eq("b", 1)).into(new ArrayList<>()).size() == 50, "not all updated");
        done.add("update");
        Document group = Document.parse("{$group: {_id: '$a', n: {$sum: 1}}}");
        check(things.aggregate(Collections.singletonList(group)).into(new ArrayList<>()).size() == 5, "not all groups");
        done.add("aggregate");
        try {
            things.insertOne(new Document("_id", 1));
            check(false, "no error for a duplicate key");
        } catch (MongoWriteException error) {
            check(error.getCode() == 11000, error.toString());
            done.add("duplicate");
        }
        things.createIndex(new Document("a", 1));
        things.deleteMany(Filters.eq("a", 1));
        things.drop();
        done.add("drop");
    }

    private static void check(boolean right, String text) {
        if (!right) {
            throw new IllegalStateException(text);
        }
    }
}
