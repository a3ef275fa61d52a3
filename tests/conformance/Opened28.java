final class Opened {
    private static final kafka.server.BrokerTopicStats STATS = new kafka.server.BrokerTopicStats();
    private static final kafka.log.LogConfig CONFIG = kafka.log.LogConfig.apply();

    static TopicPartition parse(File directory) {
        return kafka.log.Log$.MODULE$.parseTopicPartitionName(directory);
    }

    static Map<TopicPartition, Long> checkpoint(File file) {
        Map<TopicPartition, Long> found = new HashMap<>();
        new kafka.server.checkpoints.OffsetCheckpointFile(file, null).read().foreachEntry((key, offset) -> {
            found.put(key, (Long) offset);
            return null;
        });
        return found;
    }

    static String load(File directory, long start, long point, boolean isClean) {
        var log = kafka.log.Log$.MODULE$.apply(
                directory, CONFIG, start, point, new Idle(), STATS, Time.SYSTEM, 86_400_000, 600_000,
                new kafka.server.LogDirFailureChannel(10), isClean, true);
        String offsets = log.logStartOffset() + "\t" + log.logEndOffset();
        log.close();
        return "loaded\t" + offsets;
    }

    private static final class Idle implements kafka.utils.Scheduler {
        public void startup() {}

        public void shutdown() {}

        public boolean isStarted() {
            return true;
        }

        public ScheduledFuture<?> schedule(
                String name, scala.Function0<scala.runtime.BoxedUnit> task, long delay, long period, TimeUnit unit) {
            return Loads.never();
        }
    }
}
