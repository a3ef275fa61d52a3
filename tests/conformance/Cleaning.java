import java.io.*;
import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.function.Supplier;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.*;
import org.apache.kafka.storage.internals.utils.Throttler;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/** Runs Kafka's own log cleaner on partition directories, in place.

    A line of the input: the clock, the number of passes, the directory, the first dirty offset (-1: the start of the
    log), and settings (name=value), separated by tabs. Each pass after the first comes delete.retention.ms later. A line
    of the output: the end of the cleaned part, or what was thrown. */
public class Cleaning {
    /** A clock that stands. */
    record Clock(long milliseconds) implements Time {
        public long nanoseconds() { return System.nanoTime(); }
        public void sleep(long ms) { Time.SYSTEM.sleep(ms); }
        public void waitObject(Object object, Supplier<Boolean> condition, long deadline) throws InterruptedException {
            Time.SYSTEM.waitObject(object, condition, deadline);
        }
    }

    public static void main(String[] arguments) throws Exception {
        KafkaScheduler scheduler = new KafkaScheduler(1);
        scheduler.startup();
        SkimpyOffsetMap map = new SkimpyOffsetMap(1 << 24);
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            try {
                System.out.println(clean(line.split("\t"), scheduler, map));
            } catch (Throwable problem) {
                problem.printStackTrace();
                System.out.println(problem);
            }
        }
        scheduler.shutdown();
    }

    static long clean(String[] words, KafkaScheduler scheduler, SkimpyOffsetMap map) throws Exception {
        long now = Long.parseLong(words[0]), dirty = Long.parseLong(words[3]), end = -1;
        Properties settings = new Properties();
        settings.setProperty("cleanup.policy", "compact");
        settings.setProperty("file.delete.delay.ms", "0");
        for (int i = 4; i < words.length; i++) {
            String[] pair = words[i].split("=", 2);
            settings.setProperty(pair[0], pair[1]);
        }
        LogConfig config = new LogConfig(settings);
        Time clock = new Clock(now);
        UnifiedLog log = UnifiedLog.create(new File(words[2]), config, 0L, Long.MAX_VALUE, scheduler,
            new BrokerTopicStats(false), clock, 300000, new ProducerStateManagerConfig(86400000, false), 600000,
            new LogDirFailureChannel(1), true, Optional.empty());
        log.updateHighWatermark(log.logEndOffset());
        log.removeExpiredProducers(now);
        var bounds = LogCleanerManager.class.getDeclaredMethod("cleanableOffsets", UnifiedLog.class, Optional.class, long.class);
        bounds.setAccessible(true);
        Object range = bounds.invoke(null, log, dirty < 0 ? Optional.empty() : Optional.of(dirty), now);
        long first = field(range, "firstDirtyOffset"), upper = field(range, "firstUncleanableDirtyOffset");
        for (int pass = 0; pass < Integer.parseInt(words[1]); pass++) {
            var toClean = new LogToClean(log, pass == 0 ? first : log.logStartOffset(), upper, true);
            if (toClean.firstUncleanableOffset() <= toClean.firstDirtyOffset()) {
                // nothing is dirty: the clean part alone is cleaned again
                toClean = new LogToClean(log, log.logStartOffset(), toClean.firstUncleanableOffset(), true);
            }
            if (toClean.firstUncleanableOffset() <= log.logSegments().iterator().next().baseOffset()) {
                break; // the manager would not choose it
            }
            var throttler = new Throttler(1e18, 300, "x", "y", Time.SYSTEM);
            var cleaner = new Cleaner(0, map, 1 << 20, 100 << 20, 0.9, throttler, clock, partition -> { });
            end = cleaner.doClean(toClean, now + pass * config.deleteRetentionMs).getKey();
        }
        log.close();
        return end;
    }

    static long field(Object range, String name) throws Exception {
        var method = range.getClass().getDeclaredMethod(name);
        method.setAccessible(true);
        return (long) method.invoke(range);
    }
}
