import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.kafka.common.utils.AppInfoParser;
import org.apache.kafka.storage.internals.log.OffsetIndex;

/**
 * Looks up offsets in an offset index with Kafka's own code, again and again: "LookupPeer INDEX QUERIES", where QUERIES
 * is a file of big-endian longs. Each line "pass" on stdin is one pass over all of them, answered by "CPU_NANOSECONDS
 * QUERIES SUM_OF_POSITIONS". Any other line is answered by the versions of kafka-clients and of Java.
 */
public final class LookupPeer {
    private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();

    public static void main(String[] arguments) throws Exception {
        File file = new File(arguments[0]);
        long[] queries = new long[(int) (Files.size(Path.of(arguments[1])) / Long.BYTES)];
        ByteBuffer.wrap(Files.readAllBytes(Path.of(arguments[1]))).asLongBuffer().get(queries);
        OffsetIndex index = new OffsetIndex(file, 0L, (int) file.length(), false);
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = requests.readLine()) != null; ) {
            if (line.equals("pass")) {
                System.out.println(pass(index, queries));
            } else {
                System.out.println(AppInfoParser.getVersion() + " " + System.getProperty("java.version"));
            }
        }
        index.closeHandler();
    }

    private static String pass(OffsetIndex index, long[] queries) {
        long start = THREADS.getCurrentThreadCpuTime();
        long sum = 0;
        for (long query : queries) {
            sum += index.lookup(query).position();
        }
        return THREADS.getCurrentThreadCpuTime() - start + " " + queries.length + " " + sum;
    }
}
