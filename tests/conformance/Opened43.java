final class Opened {
    private static final org.apache.kafka.storage.log.metrics.BrokerTopicStats STATS =
            new org.apache.kafka.storage.log.metrics.BrokerTopicStats();
    private static final org.apache.kafka.storage.internals.log.LogConfig CONFIG =
            new org.apache.kafka.storage.internals.log.LogConfig(Map.of());

    static TopicPartition parse(File directory) throws Exception {
        return org.apache.kafka.storage.internals.log.UnifiedLog.parseTopicPartitionName(directory);
    }

    static Map<TopicPartition, Long> checkpoint(File file) throws Exception {
        return new org.apache.kafka.storage.internals.checkpoint.OffsetCheckpointFile(file, null).read();
    }

    static String load(File directory, long start, long point, boolean isClean) throws Exception {
        var log = org.apache.kafka.storage.internals.log.UnifiedLog.create(
                directory, CONFIG, start, point, new Idle(), STATS, Time.SYSTEM, 900_000,
                new org.apache.kafka.storage.internals.log.ProducerStateManagerConfig(86_400_000, true), 600_000,
                new org.apache.kafka.storage.internals.log.LogDirFailureChannel(10), isClean,
                java.util.Optional.empty());
        String offsets = log.logStartOffset() + "\t" + log.logEndOffset();
        log.close();
        return "loaded\t" + offsets;
    }

    private static final class Idle implements org.apache.kafka.server.util.Scheduler {
        public void startup() {}

        public void shutdown() {}

        public ScheduledFuture<?> schedule(String name, Runnable task, long delayMs, long periodMs) {
            if (name.startsWith("leader-epoch-cache-flush")) {
                task.run();
            }
            return Loads.never();
        }

        public void resizeThreadPool(int size) {}
    }
}
