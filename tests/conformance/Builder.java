import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedOutputStream;
import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.DataOutputStream;
import java.io.File;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.AbstractRecords;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.DefaultRecordBatch;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.record.internal.SimpleRecord;
import org.apache.kafka.common.utils.ByteBufferOutputStream;

/**
 * Kafka's own builder of batches, and its reader. Each line of the input is a command with two files, `in` and `out`,
 * and is answered when it is done: "build" builds a batch from each line of JSON and writes them, each behind its
 * length; "cut" says where a producer ends a batch; "read" writes the records of a segment, a line each, checksums
 * checked.
 */
public class Builder {
    static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = commands.readLine()) != null; ) {
            JsonNode command = JSON.readTree(line);
            Path in = Path.of(command.get("in").asText());
            Path out = Path.of(command.get("out").asText());
            switch (command.get("do").asText()) {
                case "build" -> build(in, out);
                case "cut" -> cut(in, out);
                case "read" -> read(in.toFile(), out);
                default -> throw new IllegalArgumentException(line);
            }
            System.out.println("done");
        }
    }

    static void build(Path in, Path out) throws Exception {
        try (BufferedReader lines = Files.newBufferedReader(in);
             DataOutputStream file = new DataOutputStream(new BufferedOutputStream(Files.newOutputStream(out)))) {
            for (String line; (line = lines.readLine()) != null; ) {
                ByteBuffer built = built(JSON.readTree(line));
                byte[] bytes = new byte[built.remaining()];
                built.get(bytes);
                file.writeInt(bytes.length);
                file.write(bytes);
            }
        }
    }

    static ByteBuffer built(JsonNode batch) throws Exception {
        long baseOffset = batch.get("base_offset").asLong();
        TimestampType type = TimestampType.forName(batch.path("timestamp_type").asText("CreateTime"));
        long producerId = batch.path("producer_id").asLong(-1);
        short epoch = (short) batch.path("producer_epoch").asInt(-1);
        int sequence = batch.path("base_sequence").asInt(-1);
        boolean transactional = batch.path("is_transactional").asBoolean();
        boolean control = batch.path("is_control").asBoolean();
        int leaderEpoch = batch.path("leader_epoch").asInt(-1);
        if (batch.has("marker")) {
            EndTransactionMarker marker = new EndTransactionMarker(
                ControlRecordType.valueOf(batch.get("marker").asText()), batch.get("coordinator_epoch").asInt());
            return MemoryRecords.withEndTransactionMarker(
                baseOffset, batch.get("timestamp").asLong(), leaderEpoch, producerId, epoch, marker).buffer();
        }
        if (batch.get("records").isEmpty()) {
            ByteBuffer buffer = ByteBuffer.allocate(DefaultRecordBatch.RECORD_BATCH_OVERHEAD);
            DefaultRecordBatch.writeEmptyHeader(buffer, (byte) 2, producerId, epoch, sequence, baseOffset,
                batch.get("last_offset").asLong(), leaderEpoch, type, batch.get("max_timestamp").asLong(),
                transactional, control);
            return buffer.flip();
        }
        MemoryRecordsBuilder builder = new MemoryRecordsBuilder(
            new ByteBufferOutputStream(1 << 16), (byte) batch.path("magic").asInt(2), compression(batch), type,
            baseOffset, batch.path("log_append_time").asLong(-1), producerId, epoch, sequence, transactional, control,
            leaderEpoch, Integer.MAX_VALUE, batch.path("delete_horizon_ms").asLong(-1));
        for (JsonNode record : batch.get("records")) {
            long offset = record.get(0).asLong();
            long timestamp = record.get(1).asLong();
            if (control) {
                builder.appendControlRecordWithOffset(offset,
                    new SimpleRecord(timestamp, bytes(record.get(2)), bytes(record.get(3)), headers(record)));
            } else {
                builder.appendWithOffset(offset, timestamp, bytes(record.get(2)), bytes(record.get(3)), headers(record));
            }
        }
        if (batch.has("last_offset")) {
            builder.overrideLastOffset(batch.get("last_offset").asLong());
        }
        return builder.build().buffer();
    }

    static Compression compression(JsonNode batch) {
        boolean levelled = batch.has("level");
        int level = batch.path("level").asInt();
        return switch (batch.path("codec").asText("none")) {
            case "gzip" -> levelled ? Compression.gzip().level(level).build() : Compression.gzip().build();
            case "snappy" -> Compression.snappy().build();
            case "lz4" -> levelled ? Compression.lz4().level(level).build() : Compression.lz4().build();
            case "zstd" -> levelled ? Compression.zstd().level(level).build() : Compression.zstd().build();
            default -> Compression.NONE;
        };
    }

    static byte[] bytes(JsonNode node) throws Exception {
        return node.isNull() ? null : node.binaryValue();
    }

    static Header[] headers(JsonNode record) throws Exception {
        Header[] headers = new Header[record.get(4).size()];
        for (int i = 0; i < headers.length; i++) {
            JsonNode header = record.get(4).get(i);
            headers[i] = new RecordHeader(header.get(0).asText(), bytes(header.get(1)));
        }
        return headers;
    }

    /** As RecordAccumulator does it: a buffer of batch.size, or as large as the first record may get. */
    static void cut(Path in, Path out) throws Exception {
        try (BufferedReader lines = Files.newBufferedReader(in);
             BufferedWriter file = Files.newBufferedWriter(out)) {
            for (String line; (line = lines.readLine()) != null; ) {
                JsonNode log = JSON.readTree(line);
                ArrayNode boundaries = JSON.createArrayNode().add(0);
                MemoryRecordsBuilder builder = null;
                int row = 0;
                for (JsonNode record : log.get("records")) {
                    byte[] key = bytes(record.get(2));
                    byte[] value = bytes(record.get(3));
                    Header[] headers = headers(record);
                    long offset = record.get(0).asLong();
                    long timestamp = record.get(1).asLong();
                    if (builder == null || !builder.hasRoomFor(timestamp, key, value, headers)) {
                        if (builder != null) {
                            boundaries.add(row);
                        }
                        int size = Math.max(log.get("batch_size").asInt(), AbstractRecords.estimateSizeInBytesUpperBound(
                            (byte) 2, CompressionType.NONE, key, value, headers));
                        builder = MemoryRecords.builder(
                            ByteBuffer.allocate(size), Compression.NONE, TimestampType.CREATE_TIME, offset);
                    }
                    builder.appendWithOffset(offset, timestamp, key, value, headers);
                    row++;
                }
                file.write(JSON.writeValueAsString(boundaries.add(row)));
                file.newLine();
            }
        }
    }

    static void read(File log, Path out) throws Exception {
        try (FileRecords records = FileRecords.open(log, false);
             BufferedWriter lines = Files.newBufferedWriter(out)) {
            for (RecordBatch batch : records.batches()) {
                batch.ensureValid();
                for (Record record : batch) {
                    ObjectNode line = JSON.createObjectNode();
                    line.put("codec", batch.compressionType().name).put("offset", record.offset());
                    line.put("timestamp", record.timestamp()).put("sequence", record.sequence());
                    line.put("key", array(record.key())).put("value", array(record.value()));
                    ArrayNode headers = line.putArray("headers");
                    for (Header header : record.headers()) {
                        headers.addArray().add(header.key()).add(header.value());
                    }
                    lines.write(JSON.writeValueAsString(line));
                    lines.newLine();
                }
            }
            if (records.sizeInBytes() != log.length()) {
                throw new IllegalStateException("bytes are left");
            }
        }
    }

    static byte[] array(ByteBuffer buffer) {
        if (buffer == null) {
            return null;
        }
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        return bytes;
    }
}
