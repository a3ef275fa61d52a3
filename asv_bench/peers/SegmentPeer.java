import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.StandardOpenOption;
import java.util.Iterator;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.AppInfoParser;
import org.apache.kafka.common.utils.CloseableIterator;
import org.apache.kafka.common.utils.BufferSupplier;

/**
 * Decodes one segment with Kafka's own code, again and again: "SegmentPeer file PATH" by {@link FileRecords}, "memory
 * PATH" by {@link MemoryRecords} over the mapped file. Each line "pass" on stdin is one pass, CRCs checked and every
 * record's offset, timestamp, key and value looked at, answered by "CPU_NANOSECONDS RECORDS VALUE_BYTES". Any other
 * line is answered by the versions of kafka-clients and of Java.
 *
 * <p>One process does one thing, so that its compiler sees the types of no other; and only the decoding thread's time
 * counts, neither the compiler's nor the collector's.
 */
public final class SegmentPeer {
    private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();

    private final BufferSupplier buffers = BufferSupplier.create();
    private long records;
    private long valueBytes;
    /** Depends on all that was read, so that none of the reading can be left out. */
    private long residue;

    public static void main(String[] arguments) throws Exception {
        SegmentPeer peer = new SegmentPeer();
        boolean mapped = arguments[0].equals("memory");
        File segment = new File(arguments[1]);
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = requests.readLine()) != null; ) {
            if (line.equals("pass")) {
                System.out.println(peer.pass(segment, mapped));
            } else {
                System.out.println(AppInfoParser.getVersion() + " " + System.getProperty("java.version"));
            }
        }
    }

    private String pass(File segment, boolean mapped) throws Exception {
        records = 0;
        valueBytes = 0;
        long start = THREADS.getCurrentThreadCpuTime();
        if (mapped) {
            try (FileChannel channel = FileChannel.open(segment.toPath(), StandardOpenOption.READ)) {
                MappedByteBuffer bytes = channel.map(FileChannel.MapMode.READ_ONLY, 0, channel.size());
                decode(MemoryRecords.readableRecords(bytes).batches().iterator());
            }
        } else {
            try (FileRecords opened = FileRecords.open(segment, false)) {
                decode(opened.batches().iterator());
            }
        }
        long nanoseconds = THREADS.getCurrentThreadCpuTime() - start;
        if (residue == 0x5eed) {
            System.err.println("an unlikely residue");
        }
        return nanoseconds + " " + records + " " + valueBytes;
    }

    private void decode(Iterator<? extends RecordBatch> batches) {
        while (batches.hasNext()) {
            RecordBatch batch = batches.next();
            batch.ensureValid();
            try (CloseableIterator<Record> decoded = batch.streamingIterator(buffers)) {
                while (decoded.hasNext()) {
                    Record record = decoded.next();
                    records++;
                    valueBytes += Math.max(0, record.valueSize());
                    residue = residue * 31 + record.offset() + record.timestamp() + record.keySize();
                }
            }
        }
    }
}
