import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.HashMap;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.utils.Time;

/**
 * Loads the partitions of log dirs as a broker does on its start, with Kafka's own classes: files are changed as the broker
 * changes them. Takes a line a log dir: its path, and "clean" or "unclean". Answers a line a partition, its directory and the
 * log start and log end offset, or the exception's class and message; then a line "end".
 *
 * <p>Mirrors LogManager.loadLogs, of whose classes OLD_ or NEW_ stand for those of 2.8 and 4.3.
 */
public final class Loads {
    private static final ScheduledThreadPoolExecutor NEVER = new ScheduledThreadPoolExecutor(1);

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split("\t");
            File root = new File(words[0]);
            try {
                Map<TopicPartition, Long> points = checkpoint(root, "recovery-point-offset-checkpoint");
                Map<TopicPartition, Long> starts = checkpoint(root, "log-start-offset-checkpoint");
                File[] files = root.listFiles(File::isDirectory);
                java.util.Arrays.sort(files);
                for (File directory : files) {
                    out.println(directory.getName() + "\t" + load(directory, points, starts, words[1].equals("clean")));
                }
            } catch (OutOfMemoryError error) {
                out.println("\tdied\tOutOfMemoryError\t" + error.getMessage()); // a broker catches exceptions alone
            }
            out.println("end");
            out.flush();
        }
        System.exit(0);
    }

    private static String load(
            File directory, Map<TopicPartition, Long> points, Map<TopicPartition, Long> starts, boolean isClean) {
        try {
            TopicPartition key = Opened.parse(directory);
            if (key.topic().equals("__cluster_metadata")) {
                return "raft";
            }
            return Opened.load(directory, starts.getOrDefault(key, 0L), points.getOrDefault(key, 0L), isClean);
        } catch (Throwable error) {
            String name = error.getClass().getSimpleName();
            return "died\t" + name + "\t" + String.valueOf(error.getMessage()).replaceAll("\\s+", " ");
        }
    }

    private static Map<TopicPartition, Long> checkpoint(File root, String name) {
        try {
            return Opened.checkpoint(new File(root, name));
        } catch (Exception error) {
            return new HashMap<>(); // a broker warns, and goes on
        }
    }

    /** What is to be done later is never done: deletions, expiration of producers. */
    static ScheduledFuture<?> never() {
        return NEVER.schedule(() -> {}, 1000, TimeUnit.DAYS);
    }
}
