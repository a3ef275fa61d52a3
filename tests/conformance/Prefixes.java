import java.io.File;
import java.io.PrintWriter;
import java.nio.file.Files;

/**
 * What Kafka keeps of a log that was cut: for each file and each length, the bytes of the batches that a recovery reads
 * before it stops. Arguments: the output, then the files. One line a file, a number a length from 0 to its size.
 *
 * <p>RECORD is the package of FileRecords, which has another name in later versions.
 */
public final class Prefixes {
    public static void main(String[] args) throws Exception {
        try (PrintWriter out = new PrintWriter(Files.newBufferedWriter(new File(args[0]).toPath()))) {
            for (int i = 1; i < args.length; i++) {
                try (RECORD.FileRecords records = RECORD.FileRecords.open(new File(args[i]), false)) {
                    int size = records.sizeInBytes();
                    for (int length = 0; length <= size; length++) {
                        out.print(kept(records.slice(0, length)) + " ");
                    }
                }
                out.println();
            }
        }
    }

    /** Source: LogSegment.recover. */
    private static int kept(RECORD.FileRecords records) {
        int n = 0;
        try {
            for (RECORD.RecordBatch batch : records.batches()) {
                batch.ensureValid();
                n += batch.sizeInBytes();
            }
        } catch (org.apache.kafka.common.errors.CorruptRecordException | org.apache.kafka.common.InvalidRecordException e) {
            return n;
        }
        return n;
    }
}
