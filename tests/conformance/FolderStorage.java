import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.server.log.remote.storage.LogSegmentData;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata.CustomMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteStorageException;
import org.apache.kafka.server.log.remote.storage.RemoteStorageManager;

/** Remote storage that is a folder: a file for each segment, with its records. */
public class FolderStorage implements RemoteStorageManager {
    private Path folder;

    @Override
    public void configure(Map<String, ?> configs) {
        folder = Path.of(configs.get("folder").toString());
    }

    private Path file(RemoteLogSegmentMetadata segment) {
        return folder.resolve(segment.remoteLogSegmentId().id().toString());
    }

    @Override
    public Optional<CustomMetadata> copyLogSegmentData(RemoteLogSegmentMetadata segment, LogSegmentData data)
            throws RemoteStorageException {
        try {
            Files.copy(data.logSegment(), file(segment));
        } catch (java.io.IOException problem) {
            throw new RemoteStorageException(problem);
        }
        return Optional.of(new CustomMetadata(file(segment).toString().getBytes(StandardCharsets.UTF_8)));
    }

    @Override
    public InputStream fetchLogSegment(RemoteLogSegmentMetadata segment, int start) throws RemoteStorageException {
        return fetchLogSegment(segment, start, Integer.MAX_VALUE);
    }

    @Override
    public InputStream fetchLogSegment(RemoteLogSegmentMetadata segment, int start, int end)
            throws RemoteStorageException {
        try {
            var stream = Files.newInputStream(file(segment));
            stream.skipNBytes(start);
            return stream;
        } catch (java.io.IOException problem) {
            throw new RemoteStorageException(problem);
        }
    }

    @Override
    public InputStream fetchIndex(RemoteLogSegmentMetadata segment, IndexType kind) throws RemoteStorageException {
        throw new RemoteStorageException("there are no indexes");
    }

    @Override
    public void deleteLogSegmentData(RemoteLogSegmentMetadata segment) throws RemoteStorageException {
        try {
            Files.deleteIfExists(file(segment));
        } catch (java.io.IOException problem) {
            throw new RemoteStorageException(problem);
        }
    }

    @Override
    public void close() {
    }
}
