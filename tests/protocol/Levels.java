import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.storage.internals.log.LogConfig;

/** Prints the levels of metadata.version that a release knows, and the range of each feature in production. */
public class Levels {
    public static void main(String[] args) throws Exception {
        for (MetadataVersion version : MetadataVersion.VERSIONS) {
            System.out.println("metadata.version " + version.featureLevel() + " " + version.version() + " "
                + version.isProduction());
        }
        System.out.println("segment.bytes " + leastSegmentBytes());
        Class<?> features;
        try {
            features = Class.forName("org.apache.kafka.server.common.Feature");
        } catch (ClassNotFoundException error) {
            features = Class.forName("org.apache.kafka.server.common.Features");
        }
        Object listed = features.getField("PRODUCTION_FEATURES").get(null);
        Object[] production = listed instanceof Object[] array ? array : ((java.util.List<?>) listed).toArray();
        for (Object one : production) {
            System.out.println(features.getMethod("featureName").invoke(one) + " "
                + features.getMethod("minimumProduction").invoke(one) + " "
                + features.getMethod("latestProduction").invoke(one));
        }
    }

    /** The smallest of some values of segment.bytes that the release takes. */
    static int leastSegmentBytes() throws Exception {
        for (int least : new int[] {14, 1 << 20}) {
            try {
                Properties own = new Properties();
                own.put("segment.bytes", String.valueOf(least));
                LogConfig.fromProps(Map.of(), own);
                return least;
            } catch (ConfigException refused) {
                continue;
            }
        }
        throw new IllegalStateException("segment.bytes");
    }
}
