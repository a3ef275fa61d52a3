import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.server.log.remote.storage.LogSegmentData;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata.CustomMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteResourceNotFoundException;
import org.apache.kafka.server.log.remote.storage.RemoteStorageException;
import org.apache.kafka.server.log.remote.storage.RemoteStorageManager;

/** Remote storage that is a folder, with the files of LocalTieredStorage of Kafka's own tests. */
public class FolderStorage implements RemoteStorageManager {
    private Path folder;

    @Override
    public void configure(Map<String, ?> configs) {
        folder = Path.of(configs.get("folder").toString());
    }

    private Path file(RemoteLogSegmentMetadata segment, String suffix) {
        var of = segment.topicIdPartition();
        var name = String.format("%020d-%s%s", segment.startOffset(), segment.remoteLogSegmentId().id(), suffix);
        return folder.resolve(of.topicPartition() + "-" + of.topicId()).resolve(name);
    }

    private static String suffix(IndexType kind) {
        return switch (kind) {
            case OFFSET -> ".index";
            case TIMESTAMP -> ".timeindex";
            case TRANSACTION -> ".txnindex";
            case PRODUCER_SNAPSHOT -> ".snapshot";
            case LEADER_EPOCH -> ".leader_epoch_checkpoint";
        };
    }

    @Override
    public Optional<CustomMetadata> copyLogSegmentData(RemoteLogSegmentMetadata segment, LogSegmentData data)
            throws RemoteStorageException {
        var log = file(segment, ".log");
        try {
            Files.createDirectories(log.getParent());
            Files.copy(data.logSegment(), log);
            Files.copy(data.offsetIndex(), file(segment, ".index"));
            Files.copy(data.timeIndex(), file(segment, ".timeindex"));
            if (data.transactionIndex().isPresent()) {
                Files.copy(data.transactionIndex().get(), file(segment, ".txnindex"));
            }
            var epochs = new byte[data.leaderEpochIndex().remaining()];
            data.leaderEpochIndex().duplicate().get(epochs);
            Files.write(file(segment, ".leader_epoch_checkpoint"), epochs);
            Files.copy(data.producerSnapshotIndex(), file(segment, ".snapshot"));
        } catch (java.io.IOException problem) {
            throw new RemoteStorageException(problem);
        }
        return Optional.of(new CustomMetadata(folder.relativize(log).toString().getBytes(StandardCharsets.UTF_8)));
    }

    @Override
    public InputStream fetchLogSegment(RemoteLogSegmentMetadata segment, int start) throws RemoteStorageException {
        return fetchLogSegment(segment, start, Integer.MAX_VALUE);
    }

    @Override
    public InputStream fetchLogSegment(RemoteLogSegmentMetadata segment, int start, int end)
            throws RemoteStorageException {
        try {
            var stream = Files.newInputStream(file(segment, ".log"));
            stream.skipNBytes(start);
            return stream;
        } catch (java.io.IOException problem) {
            throw new RemoteStorageException(problem);
        }
    }

    @Override
    public InputStream fetchIndex(RemoteLogSegmentMetadata segment, IndexType kind) throws RemoteStorageException {
        var file = file(segment, suffix(kind));
        if (!Files.exists(file)) {
            throw new RemoteResourceNotFoundException(file.toString());
        }
        try {
            return Files.newInputStream(file);
        } catch (java.io.IOException problem) {
            throw new RemoteStorageException(problem);
        }
    }

    @Override
    public void deleteLogSegmentData(RemoteLogSegmentMetadata segment) throws RemoteStorageException {
        try {
            Files.deleteIfExists(file(segment, ".log"));
            for (var kind : IndexType.values()) {
                Files.deleteIfExists(file(segment, suffix(kind)));
            }
        } catch (java.io.IOException problem) {
            throw new RemoteStorageException(problem);
        }
    }

    @Override
    public void close() {
    }
}
