import static com.mongodb.client.model.Filters.eq;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import com.mongodb.MongoCommandException;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoClients;
import com.mongodb.client.MongoCollection;
import com.mongodb.client.model.IndexOptions;
import com.mongodb.client.model.Indexes;
import com.mongodb.client.model.Sorts;
import java.util.ArrayList;
import java.util.concurrent.TimeUnit;
import org.bson.Document;
import org.junit.jupiter.api.Test;

/** What an application of Cosmos DB does with the emulator at EMULATOR_URI. */
class EmulatorTest {
    private static final String URI = System.getenv("EMULATOR_URI");

    @Test
    void sessionsExpire() {
        assumeTrue(URI != null, "EMULATOR_URI names no server");
        // The string as it is, without settings: the JVM's options say which certificate is trusted.
        try (MongoClient client = MongoClients.create(URI)) {
            MongoCollection<Document> sessions = client.getDatabase("shop").getCollection("sessions");
            sessions.createIndex(Indexes.ascending("_ts"), new IndexOptions().expireAfter(1L, TimeUnit.HOURS));
            sessions.insertOne(new Document("_id", 1).append("user", "ann"));
            assertEquals("ann", sessions.find(eq(1)).first().getString("user"));

            client.getDatabase("admin").runCommand(new Document("advanceClock", 3600));
            assertNull(sessions.find(eq(1)).first());

            MongoCommandException refused = assertThrows(
                    MongoCommandException.class,
                    () -> sessions.find().sort(Sorts.ascending("at")).into(new ArrayList<>()));
            assertEquals(2, refused.getErrorCode());
            assertEquals("BadValue", refused.getErrorCodeName());
        }
    }

    @Test
    void refusesTheKeyAsPortalsShowIt() {
        assumeTrue(URI != null, "EMULATOR_URI names no server");
        // Not URLDecoder, which would make a space of a plus.
        String asPortalsShowIt = URI.replace("%2F", "/").replace("%2B", "+").replace("%3D", "=");
        IllegalArgumentException refused =
                assertThrows(IllegalArgumentException.class, () -> MongoClients.create(asPortalsShowIt));
        assertTrue(refused.getMessage().contains("The port contains non-digit characters"), refused.getMessage());
    }
}
