import org.apache.kafka.server.common.MetadataVersion;

/** Prints the levels of metadata.version that a release knows, and the range of each feature in production. */
public class Levels {
    public static void main(String[] args) throws Exception {
        for (MetadataVersion version : MetadataVersion.VERSIONS) {
            System.out.println("metadata.version " + version.featureLevel() + " " + version.version() + " "
                + version.isProduction());
        }
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
}
