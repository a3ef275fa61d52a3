import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.utils.AppInfoParser;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.checkpoint.LeaderEpochCheckpointFile;
import org.apache.kafka.storage.internals.epoch.LeaderEpochFileCache;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.ProducerStateManager;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;

/**
 * Recovers one segment with Kafka's own code, again and again: "RecoverPeer DIRECTORY PATH" links the segment into the
 * directory, which has to be on the same file system. Each line "pass" on stdin is one pass, answered by
 * "CPU_NANOSECONDS INDEX_ENTRIES BYTES". Any other line is answered by the versions of kafka-clients and of Java.
 */
public final class RecoverPeer {
    private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();

    public static void main(String[] arguments) throws Exception {
        Path home = Path.of(arguments[0], "t-0");
        Files.createDirectories(home);
        Path log = home.resolve("00000000000000000000.log");
        Files.createLink(log, Path.of(arguments[1]));
        LogConfig config = new LogConfig(Map.of("segment.bytes", 1 << 30, "index.interval.bytes", 4096));
        LogSegment segment = LogSegment.open(home.toFile(), 0L, config, Time.SYSTEM, true, 0, false, "");
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = requests.readLine()) != null; ) {
            if (line.equals("pass")) {
                System.out.println(pass(home.toFile(), segment));
            } else {
                System.out.println(AppInfoParser.getVersion() + " " + System.getProperty("java.version"));
            }
        }
        segment.close();
    }

    private static String pass(File home, LogSegment segment) throws Exception {
        TopicPartition partition = new TopicPartition("t", 0);
        long start = THREADS.getCurrentThreadCpuTime();
        ProducerStateManager producers = new ProducerStateManager(
            partition, home, 60_000, new ProducerStateManagerConfig(86_400_000, false), Time.SYSTEM);
        LeaderEpochFileCache epochs = new LeaderEpochFileCache(
            partition,
            new LeaderEpochCheckpointFile(LeaderEpochCheckpointFile.newFile(home), new LogDirFailureChannel(1)),
            new KafkaScheduler(1));
        if (segment.recover(producers, epochs) != 0) {
            throw new IllegalStateException("the segment was cut");
        }
        segment.offsetIndex().flush();
        segment.timeIndex().flush();
        long nanoseconds = THREADS.getCurrentThreadCpuTime() - start;
        return nanoseconds + " " + (segment.offsetIndex().entries() + segment.timeIndex().entries()) + " -1";
    }
}
