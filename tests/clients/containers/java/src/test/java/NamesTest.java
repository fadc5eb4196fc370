import static org.junit.jupiter.api.Assertions.assertEquals;

import org.junit.jupiter.api.Test;
import org.testcontainers.utility.DockerImageName;

/** Runs without Docker, so that Maven downloads what it runs tests with. */
class NamesTest {
    @Test
    void anImageOfAnotherNameTakesThePlaceOfTheModules() {
        for (var name : new String[] {"mongo", "mcr.microsoft.com/cosmosdb/linux/azure-cosmos-emulator"}) {
            var image = DockerImageName.parse("mongottl").asCompatibleSubstituteFor(name);
            image.assertCompatibleWith(DockerImageName.parse(name));
            assertEquals("mongottl:latest", image.asCanonicalNameString());
        }
    }
}
