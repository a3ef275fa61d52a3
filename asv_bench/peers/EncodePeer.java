import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.AppInfoParser;

/**
 * Builds the batches of one segment with Kafka's own {@link MemoryRecordsBuilder}, again and again: "EncodePeer CODEC
 * PATH" holds the records in memory, with the batches they came in. Each line "pass" on stdin is one pass, into a buffer
 * that is used again, answered by "CPU_NANOSECONDS RECORDS VALUE_BYTES". Any other line is answered by the versions of
 * kafka-clients and of Java.
 */
public final class EncodePeer {
    private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();

    private final List<byte[]> keys = new ArrayList<>();
    private final List<byte[]> values = new ArrayList<>();
    private final List<Header[]> headers = new ArrayList<>();
    private final List<Integer> counts = new ArrayList<>();
    private long[] timestamps = new long[1 << 16];
    private final ByteBuffer buffer = ByteBuffer.allocate(1 << 20);
    /** Depends on all that was built, so that none of the building can be left out. */
    private long residue;

    public static void main(String[] arguments) throws Exception {
        Compression compression = switch (arguments[0]) {
            case "gzip" -> Compression.gzip().build();
            case "snappy" -> Compression.snappy().build();
            case "lz4" -> Compression.lz4().build();
            case "zstd" -> Compression.zstd().build();
            default -> Compression.NONE;
        };
        EncodePeer peer = new EncodePeer();
        peer.load(new File(arguments[1]));
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = requests.readLine()) != null; ) {
            if (line.equals("pass")) {
                System.out.println(peer.pass(compression));
            } else {
                System.out.println(AppInfoParser.getVersion() + " " + System.getProperty("java.version"));
            }
        }
    }

    private void load(File segment) throws Exception {
        try (FileRecords opened = FileRecords.open(segment, false)) {
            for (RecordBatch batch : opened.batches()) {
                int count = 0;
                for (Record record : batch) {
                    if (keys.size() == timestamps.length) {
                        timestamps = java.util.Arrays.copyOf(timestamps, 2 * timestamps.length);
                    }
                    timestamps[keys.size()] = record.timestamp();
                    keys.add(bytes(record.key()));
                    values.add(bytes(record.value()));
                    headers.add(record.headers());
                    count++;
                }
                counts.add(count);
            }
        }
    }

    private static byte[] bytes(ByteBuffer view) {
        if (view == null) {
            return null;
        }
        byte[] copy = new byte[view.remaining()];
        view.get(copy);
        return copy;
    }

    private String pass(Compression compression) {
        int row = 0;
        long valueBytes = 0;
        long start = THREADS.getCurrentThreadCpuTime();
        for (int count : counts) {
            buffer.clear();
            MemoryRecordsBuilder builder = MemoryRecords.builder(
                buffer, RecordBatch.MAGIC_VALUE_V2, compression, TimestampType.CREATE_TIME, row, timestamps[row], 7);
            for (int stop = row + count; row < stop; row++) {
                byte[] value = values.get(row);
                builder.appendWithOffset(row, timestamps[row], keys.get(row), value, headers.get(row));
                valueBytes += value == null ? 0 : value.length;
            }
            residue += builder.build().sizeInBytes();
        }
        long nanoseconds = THREADS.getCurrentThreadCpuTime() - start;
        if (residue == 0x5eed) {
            System.err.println("an unlikely residue");
        }
        return nanoseconds + " " + row + " " + valueBytes;
    }
}
