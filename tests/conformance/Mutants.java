import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.zip.CRC32;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.utils.BufferSupplier;

/**
 * What Kafka reads of odd segments. Takes the path of a segment a line; answers a line a batch, "batch" and its
 * size, a line a record of it, "record", and "bad" with an exception where the batch is not valid or not to be decoded; then
 * a line "end" with what kept it from the next batch, if anything did. Keys, values and headers are told by length and
 * CRC32.
 *
 * <p>Mirrors CompletedFetch of the consumer. RECORD is the package of FileRecords, which has another name in
 * later versions.
 */
public final class Mutants {
    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String path = in.readLine(); path != null; path = in.readLine()) {
            String end = "";
            try (RECORD.FileRecords records = RECORD.FileRecords.open(new File(path), false)) {
                for (RECORD.RecordBatch batch : records.batches()) {
                    out.println("batch\t" + batch.sizeInBytes());
                    try {
                        batch.ensureValid();
                        print(out, batch);
                    } catch (Throwable problem) {
                        out.println("bad\t" + said(problem));
                    }
                }
            } catch (Throwable problem) {
                end = said(problem);
            }
            out.println("end\t" + end);
        }
        out.flush();
    }

    private static void print(PrintStream out, RECORD.RecordBatch batch) {
        try (org.apache.kafka.common.utils.CloseableIterator<RECORD.Record> records =
                batch.streamingIterator(BufferSupplier.NO_CACHING)) {
            while (records.hasNext()) {
                RECORD.Record record = records.next();
                StringBuilder line = new StringBuilder("record\t" + isValid(record) + "\t" + record.offset() + "\t" + record.timestamp() + "\t"
                        + sum(record.key()) + "\t" + sum(record.value()) + "\t");
                for (Header header : record.headers()) {
                    String key = header.key();
                    line.append(key.indexOf('\ufffd') < 0 ? sum(ByteBuffer.wrap(key.getBytes(StandardCharsets.UTF_8))) : "?")
                        .append('=').append(sum(header.value() == null ? null : ByteBuffer.wrap(header.value()))).append(' ');
                }
                out.println(line);
            }
        }
    }

    /** Of a message in a wrapper, whether its own checksum is right. */
    private static boolean isValid(RECORD.Record record) {
        try {
            record.ensureValid();
            return true;
        } catch (org.apache.kafka.common.errors.CorruptRecordException | org.apache.kafka.common.InvalidRecordException e) {
            return false;
        }
    }

    private static String sum(ByteBuffer bytes) {
        if (bytes == null) {
            return "-";
        }
        CRC32 crc = new CRC32();
        ByteBuffer all = bytes.duplicate();
        int size = all.remaining();
        crc.update(all);
        return size + ":" + crc.getValue();
    }

    private static String said(Throwable problem) {
        return problem.getClass().getSimpleName() + ": " + String.valueOf(problem.getMessage()).replaceAll("\\s+", " ");
    }
}
