import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Future;
import kafka.server.KafkaConfig;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.ListOffsetsResult;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.config.TopicConfig;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.checkpoint.LeaderEpochCheckpointFile;
import org.apache.kafka.storage.internals.epoch.LeaderEpochFileCache;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.tools.DumpLogSegments;

/** Kafka's own clients and dump tool behind a pipe: a JSON object a line in, a JSON object a line out. */
public class Client {
    static final ObjectMapper JSON = new ObjectMapper();
    static final long EPOCH = Long.getLong("epoch", 1_700_000_000_000L);
    static String server;

    public static void main(String[] args) throws Exception {
        PrintStream replies = System.out;
        System.setOut(System.err);
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            ObjectNode reply = JSON.createObjectNode();
            try {
                run(JSON.readTree(line), reply);
            } catch (Throwable problem) {
                StringWriter trace = new StringWriter();
                problem.printStackTrace(new PrintWriter(trace));
                reply.put("error", trace.toString());
            }
            replies.println(JSON.writeValueAsString(reply));
            replies.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    static void run(JsonNode command, ObjectNode reply) throws Exception {
        server = command.path("server").asText();
        switch (command.get("do").asText()) {
            case "hello" -> reply.put("version", org.apache.kafka.common.utils.AppInfoParser.getVersion());
            case "ready" -> ready();
            case "create" -> create(command);
            case "alter" -> alter(command);
            case "produce" -> produce(command);
            case "transactions" -> transactions(command, reply);
            case "commit" -> commit(command);
            case "commit_at" -> commitAt(command);
            case "groups" -> groups(reply);
            case "resume" -> resume(command, reply);
            case "send" -> send(command, reply);
            case "stream" -> stream(command);
            case "delete_records" -> deleteRecords(command);
            case "delete_topic" -> deleteTopic(command);
            case "consume" -> consume(command, reply);
            case "offsets" -> offsets(command, reply);
            case "stable" -> stable(reply);
            case "producers" -> producers(reply);
            case "epochs" -> epochs(command, reply);
            case "flood" -> flood(command);
            case "dry" -> dry(reply);
            case "dump" -> dump(command);
            case "murmur2" -> murmur2(command, reply);
            case "log_configs" -> logConfigs(command, reply);
            case "setting_names" -> settingNames(reply);
            default -> throw new IllegalArgumentException(command.toString());
        }
    }

    /** The hash of keys in base64, and the partition of each. */
    static void murmur2(JsonNode command, ObjectNode reply) {
        ArrayNode hashes = reply.putArray("hashes");
        ArrayNode partitions = reply.putArray("partitions");
        int count = command.get("partitions").asInt();
        for (JsonNode key : command.get("keys")) {
            byte[] bytes = java.util.Base64.getDecoder().decode(key.asText());
            hashes.add(Utils.murmur2(bytes));
            partitions.add(BuiltInPartitioner.partitionForKey(bytes, count));
        }
    }

    /** What topics are set to whose broker and whose own properties are given, or why Kafka refuses them. */
    static void logConfigs(JsonNode command, ObjectNode reply) {
        ArrayNode answers = reply.putArray("configs");
        for (JsonNode one : command.get("configs")) {
            ObjectNode answer = answers.addObject();
            Map<String, String> broker = new HashMap<>(Map.of("node.id", "1", "process.roles", "broker",
                "controller.listener.names", "C", "listeners", "P://:9", "advertised.listeners", "P://localhost:9",
                "inter.broker.listener.name", "P", "listener.security.protocol.map", "P:PLAINTEXT,C:PLAINTEXT",
                "controller.quorum.bootstrap.servers", "localhost:9", "log.dirs", "/nowhere"));
            Map<String, String> topic = new HashMap<>();
            one.get("broker").fields().forEachRemaining(pair -> broker.put(pair.getKey(), pair.getValue().asText()));
            one.get("topic").fields().forEachRemaining(pair -> topic.put(pair.getKey(), pair.getValue().asText()));
            try {
                LogConfig.validate(topic);
                java.util.Properties own = new java.util.Properties();
                own.putAll(topic);
                LogConfig config = LogConfig.fromProps(new KafkaConfig(broker, false).extractLogConfigMap(), own);
                ObjectNode values = answer.putObject("values");
                for (String name : LogConfig.configNames()) {
                    Object value = config.values().get(name);
                    values.put(name, value instanceof List<?> list
                        ? list.stream().map(Object::toString).collect(java.util.stream.Collectors.joining(","))
                        : String.valueOf(value));
                }
                answer.put("max_segment_ms", config.maxSegmentMs());
            } catch (Exception refused) {
                answer.put("refused", refused.toString());
            }
        }
    }

    static void settingNames(ObjectNode reply) throws Exception {
        ArrayNode names = reply.putArray("names");
        KafkaConfig.configDef().names().forEach(names::add);
        for (var field : TopicConfig.class.getFields()) {
            if (field.getName().endsWith("_CONFIG")) {
                names.add((String) field.get(null));
            }
        }
    }

    static Map<String, Object> config(Object... pairs) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", server);
        for (int i = 0; i < pairs.length; i += 2) {
            config.put((String) pairs[i], pairs[i + 1]);
        }
        return config;
    }

    static Admin admin() {
        return Admin.create(config("request.timeout.ms", 5000, "default.api.timeout.ms", 15000,
            "reconnect.backoff.ms", 20, "retry.backoff.ms", 20));
    }

    static KafkaProducer<byte[], byte[]> producer(Object... pairs) {
        Map<String, Object> config = config("linger.ms", 10_000, "batch.size", 262_144, "max.request.size", 4_000_000,
            "enable.idempotence", false, "acks", "all", "metadata.max.age.ms", 60_000, "retry.backoff.ms", 20);
        config.putAll(config(pairs));
        return new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer());
    }

    static KafkaConsumer<byte[], byte[]> consumer(Object... pairs) {
        Map<String, Object> config = config("isolation.level", "read_uncommitted", "enable.auto.commit", false,
            "auto.offset.reset", "none", "max.poll.records", 5000, "fetch.max.wait.ms", 20, "retry.backoff.ms", 20);
        config.putAll(config(pairs));
        return new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    static List<TopicPartition> partitions(Admin admin) throws Exception {
        return partitions(admin, List.of());
    }

    /** The partitions of some topics, or of all; each has a leader. */
    static List<TopicPartition> partitions(Admin admin, List<String> only) throws Exception {
        Collection<String> names = only.isEmpty()
            ? admin.listTopics(new ListTopicsOptions().listInternal(true)).names().get() : only;
        List<TopicPartition> partitions = new ArrayList<>();
        for (var topic : admin.describeTopics(names).allTopicNames().get().values()) {
            for (TopicPartitionInfo info : topic.partitions()) {
                if (info.leader() == null || info.leader().isEmpty()) {
                    throw new IllegalStateException("no leader for " + topic.name());
                }
                partitions.add(new TopicPartition(topic.name(), info.partition()));
            }
        }
        return partitions;
    }

    /** Wait until every partition has a leader that answers. */
    static void ready() throws Exception {
        try (Admin admin = admin()) {
            for (int attempt = 0; ; attempt++) {
                try {
                    if (admin.describeCluster().nodes().get().isEmpty()) {
                        throw new IllegalStateException("no broker");
                    }
                    latest(admin, partitions(admin));
                    return;
                } catch (Exception problem) {
                    if (attempt == 200) {
                        throw problem;
                    }
                    Thread.sleep(50);
                }
            }
        }
    }

    static void create(JsonNode command) throws Exception {
        List<NewTopic> topics = new ArrayList<>();
        for (JsonNode topic : command.get("topics")) {
            Map<String, String> configs = new HashMap<>();
            topic.get("configs").properties().forEach(entry -> configs.put(entry.getKey(), entry.getValue().asText()));
            short replicas = (short) topic.path("replicas").asInt(1);
            topics.add(new NewTopic(topic.get("name").asText(), topic.get("partitions").asInt(), replicas)
                .configs(configs));
        }
        try (Admin admin = admin()) {
            admin.createTopics(topics).all().get();
        }
        ready();
    }

    /** One record: what it holds depends on the seed, the kind of content and its number, and on nothing else. */
    static ProducerRecord<byte[], byte[]> record(String topic, int partitions, String kind, int number, Random random) {
        int partition = random.nextInt(partitions);
        long timestamp = EPOCH + 10L * number;
        byte[] key = bytes(random, "key-" + number, 24);
        byte[] value = bytes(random, "the quick brown fox jumps over the lazy dog, ", 400);
        Headers headers = new RecordHeaders();
        switch (kind) {
            case "headers" -> {
                String[] names = {"trace", "", "état", "trace", "кафка", "\uD83D\uDC1B", "n".repeat(random.nextInt(40))};
                for (int i = random.nextInt(6); i > 0; i--) {
                    headers.add(names[random.nextInt(names.length)], bytes(random, "header ", 30));
                }
                if (random.nextInt(5) == 0) {
                    headers.add("again", null).add("again", new byte[0]).add("again", new byte[] {1, 2, 3});
                }
            }
            case "keyed" -> {
                key = ("key-" + random.nextInt(40)).getBytes(StandardCharsets.UTF_8);
                partition = Math.floorMod(key[key.length - 1], partitions);
                value = random.nextInt(4) == 0 ? null : value == null ? new byte[0] : value;
            }
            case "large" -> value = bytes(random, "large " + number + " ", 700_000);
            case "backwards" -> timestamp = switch (random.nextInt(8)) {
                case 0 -> 0L;
                case 1 -> EPOCH - 10L * number;
                default -> EPOCH + random.nextInt(5000);
            };
            default -> { }
        }
        return new ProducerRecord<>(topic, partition, timestamp, key, value, headers);
    }

    static byte[] bytes(Random random, String text, int most) {
        switch (random.nextInt(8)) {
            case 0:
                return null;
            case 1:
                return new byte[0];
            case 2:
                byte[] noise = new byte[random.nextInt(most)];
                random.nextBytes(noise);
                return noise;
            default:
                byte[] unit = text.getBytes(StandardCharsets.UTF_8);
                byte[] bytes = new byte[random.nextInt(most)];
                for (int i = 0; i < bytes.length; i++) {
                    bytes[i] = unit[i % unit.length];
                }
                return bytes;
        }
    }

    static List<String> texts(JsonNode array) {
        List<String> texts = new ArrayList<>();
        array.forEach(item -> texts.add(item.asText()));
        return texts;
    }

    /** Several producers, one a codec, take turns; how many records make a batch is drawn as well. */
    static void produce(JsonNode command) throws Exception {
        String topic = command.get("topic").asText();
        int records = command.get("records").asInt();
        int perBatch = command.get("per_batch").asInt();
        int first = command.get("first").asInt();
        Random random = new Random(command.get("seed").asLong());
        List<KafkaProducer<byte[], byte[]>> producers = new ArrayList<>();
        try {
            for (String codec : texts(command.get("codecs"))) {
                producers.add(producer("compression.type", codec,
                    "enable.idempotence", command.get("idempotent").asBoolean()));
            }
            for (int sent = 0; sent < records; ) {
                KafkaProducer<byte[], byte[]> producer = producers.get(random.nextInt(producers.size()));
                List<Future<RecordMetadata>> futures = new ArrayList<>();
                for (int i = random.nextInt(perBatch); i >= 0 && sent < records; i--, sent++) {
                    futures.add(producer.send(record(topic, command.get("partitions").asInt(),
                        command.get("kind").asText(), first + sent, random)));
                }
                producer.flush();
                for (Future<RecordMetadata> future : futures) {
                    future.get();
                }
            }
        } finally {
            producers.forEach(KafkaProducer::close);
        }
    }

    static KafkaProducer<byte[], byte[]> transactional(String id, String codec) {
        KafkaProducer<byte[], byte[]> producer = producer("compression.type", codec, "enable.idempotence", true,
            "transactional.id", id, "transaction.timeout.ms", 7_200_000);
        producer.initTransactions();
        return producer;
    }

    /** Two producers whose transactions interleave, commit and abort; one is fenced, and one is left open at the end. */
    static void transactions(JsonNode command, ObjectNode reply) throws Exception {
        String topic = command.get("topic").asText();
        String kind = command.get("kind").asText();
        int partitions = command.get("partitions").asInt();
        Random random = new Random(command.get("seed").asLong());
        String id = topic + "-" + command.get("seed").asLong();
        int number = command.get("first").asInt();
        int committed = 0;
        int aborted = 0;
        List<KafkaProducer<byte[], byte[]>> producers =
            List.of(transactional(id + "-a", "none"), transactional(id + "-b", "lz4"));
        for (int round = command.get("rounds").asInt(); round > 0; round--) {
            for (KafkaProducer<byte[], byte[]> producer : producers) {
                producer.beginTransaction();
            }
            for (int i = random.nextInt(4); i > 0; i--) {
                KafkaProducer<byte[], byte[]> producer = producers.get(random.nextInt(2));
                for (int j = random.nextInt(6); j >= 0; j--) {
                    producer.send(record(topic, partitions, kind, number++, random));
                }
                producer.flush();
            }
            for (KafkaProducer<byte[], byte[]> producer : producers) {
                if (random.nextInt(3) > 0) {
                    producer.commitTransaction();
                    committed++;
                } else {
                    producer.abortTransaction();
                    aborted++;
                }
            }
        }
        if (command.get("fence").asBoolean()) {
            producers.get(0).beginTransaction();
            producers.get(0).send(record(topic, partitions, kind, number++, random));
            producers.get(0).flush();
            transactional(id + "-a", "none").close(Duration.ZERO);
            aborted++;
        }
        if (command.get("open").asBoolean()) {
            producers.get(1).beginTransaction();
            producers.get(1).send(record(topic, partitions, kind, number++, random));
            producers.get(1).flush();
        }
        producers.forEach(producer -> producer.close(Duration.ZERO));
        reply.put("committed", committed).put("aborted", aborted);
    }

    static void alter(JsonNode command) throws Exception {
        List<AlterConfigOp> operations = new ArrayList<>();
        command.get("configs").properties().forEach(config -> operations.add(new AlterConfigOp(
            new ConfigEntry(config.getKey(), config.getValue().asText()), AlterConfigOp.OpType.SET)));
        try (Admin admin = admin()) {
            ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, command.get("topic").asText());
            admin.incrementalAlterConfigs(Map.of(topic, operations)).all().get();
        }
    }

    static void commit(JsonNode command) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer("group.id", command.get("group").asText())) {
            TopicPartition partition = new TopicPartition(command.get("topic").asText(), 0);
            consumer.assign(List.of(partition));
            for (long offset = 0; offset < 5; offset++) {
                consumer.commitSync(Map.of(partition, new OffsetAndMetadata(offset)));
            }
        }
    }

    /** Commits one offset for each partition that is named. */
    static void commitAt(JsonNode command) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer("group.id", command.get("group").asText())) {
            Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
            for (JsonNode at : command.get("offsets")) {
                offsets.put(new TopicPartition(at.get(0).asText(), at.get(1).asInt()),
                    new OffsetAndMetadata(at.get(2).asLong()));
            }
            consumer.assign(offsets.keySet());
            consumer.commitSync(offsets);
        }
    }

    /** All groups that the cluster lists, and the offsets of each. */
    static void groups(ObjectNode reply) throws Exception {
        try (Admin admin = admin()) {
            ArrayNode rows = reply.putArray("groups");
            for (var group : admin.listGroups().all().get()) {
                ObjectNode row = rows.addObject().put("group", group.groupId());
                ArrayNode offsets = row.putArray("offsets");
                if (group.type().filter(type -> type.toString().equals("Share")).isPresent()) {
                    admin.listShareGroupOffsets(Map.of(group.groupId(),
                            new org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec()))
                        .partitionsToOffsetInfo(group.groupId()).get().forEach((partition, info) -> offsets.addArray()
                            .add(partition.topic()).add(partition.partition()).add(info.startOffset()).add(-1).add(""));
                    continue;
                }
                admin.listConsumerGroupOffsets(group.groupId()).partitionsToOffsetAndMetadata().get().forEach(
                    (partition, offset) -> offsets.addArray().add(partition.topic()).add(partition.partition())
                        .add(offset.offset()).add(offset.leaderEpoch().orElse(-1)).add(offset.metadata()));
            }
        }
    }

    /** The offset of the first record that a consumer of a group gets, of either protocol; it may commit a later one. */
    static void resume(JsonNode command, ObjectNode reply) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer("group.id", command.get("group").asText(),
                "group.protocol", command.get("protocol").asText())) {
            consumer.subscribe(List.of(command.get("topic").asText()));
            long deadline = System.nanoTime() + 30_000_000_000L;
            while (System.nanoTime() < deadline) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(50))) {
                    reply.put("offset", record.offset());
                    if (command.has("commit")) {
                        consumer.commitSync(Map.of(new TopicPartition(record.topic(), record.partition()),
                            new OffsetAndMetadata(command.get("commit").asLong())));
                    }
                    return;
                }
            }
            throw new IllegalStateException("the consumer got nothing");
        }
    }

    /** Records of one batch from a new idempotent producer, and the offsets that they got. */
    static void send(JsonNode command, ObjectNode reply) throws Exception {
        List<Object> pairs = new ArrayList<>(List.of("enable.idempotence", true, "delivery.timeout.ms", 30_000,
            "linger.ms", 5000, "request.timeout.ms", 5000));
        String id = command.path("transactional_id").asText("");
        if (!id.isEmpty()) {
            pairs.addAll(List.of("transactional.id", id));
        }
        try (KafkaProducer<byte[], byte[]> producer = producer(pairs.toArray())) {
            if (!id.isEmpty()) {
                producer.initTransactions();
                producer.beginTransaction();
            }
            List<Future<RecordMetadata>> futures = new ArrayList<>();
            for (int i = 0; i < command.get("records").asInt(); i++) {
                futures.add(producer.send(new ProducerRecord<>(command.get("topic").asText(), 0, null, new byte[] {7})));
            }
            producer.flush();
            ArrayNode offsets = reply.putArray("offsets");
            for (Future<RecordMetadata> future : futures) {
                offsets.add(future.get().offset());
            }
            if (!id.isEmpty()) {
                producer.commitTransaction();
            }
        }
    }

    /** Sends numbers until the process is killed; the offsets that are acknowledged go to a file. */
    static void stream(JsonNode command) throws Exception {
        String topic = command.get("topic").asText();
        int partitions = command.get("partitions").asInt();
        try (KafkaProducer<byte[], byte[]> producer = producer("linger.ms", 2, "enable.idempotence", true);
                BufferedWriter lines = Files.newBufferedWriter(Path.of(command.get("file").asText()))) {
            for (int number = 0; ; number++) {
                String value = String.valueOf(number);
                producer.send(new ProducerRecord<>(topic, number % partitions, null, value.getBytes()), (at, problem) -> {
                    if (problem == null) {
                        try {
                            lines.write(at.partition() + " " + at.offset() + " " + value + "\n");
                            lines.flush();
                        } catch (java.io.IOException failed) {
                            throw new java.io.UncheckedIOException(failed);
                        }
                    }
                });
                if (number % 5 == 0) {
                    Thread.sleep(1);
                }
            }
        }
    }

    static void deleteTopic(JsonNode command) throws Exception {
        try (Admin admin = admin()) {
            admin.deleteTopics(List.of(command.get("topic").asText())).all().get();
        }
    }

    static void deleteRecords(JsonNode command) throws Exception {
        try (Admin admin = admin()) {
            TopicPartition partition =
                new TopicPartition(command.get("topic").asText(), command.get("partition").asInt());
            RecordsToDelete before = RecordsToDelete.beforeOffset(command.get("before").asLong());
            admin.deleteRecords(Map.of(partition, before)).all().get();
        }
    }

    /** All that is in all topics, a JSON object a record and line, sorted by topic, partition and offset. */
    static void consume(JsonNode command, ObjectNode reply) throws Exception {
        Map<String, List<ConsumerRecord<byte[], byte[]>>> read = new TreeMap<>();
        List<String> only = texts(command.path("topics"));
        String isolation = command.path("isolation").asText("read_uncommitted");
        try (Admin admin = admin();
             KafkaConsumer<byte[], byte[]> consumer = consumer("isolation.level", isolation)) {
            List<TopicPartition> partitions = partitions(admin, only);
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            if (command.has("from")) {
                ends.forEach((partition, end) ->
                    consumer.seek(partition, Math.min(command.get("from").asLong(), end)));
            }
            long deadline = System.nanoTime() + 30_000_000_000L;
            while (partitions.stream().anyMatch(partition -> consumer.position(partition) < ends.get(partition))) {
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException("the consumer did not reach the end");
                }
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(50))) {
                    String place = "%s %010d".formatted(record.topic(), record.partition());
                    read.computeIfAbsent(place, name -> new ArrayList<>()).add(record);
                }
            }
            ArrayNode topics = reply.putArray("partitions");
            partitions.forEach(partition -> topics.addArray().add(partition.topic()).add(partition.partition()));
        }
        try (BufferedWriter lines = Files.newBufferedWriter(Path.of(command.get("file").asText()))) {
            for (List<ConsumerRecord<byte[], byte[]>> records : read.values()) {
                for (ConsumerRecord<byte[], byte[]> record : records) {
                    ObjectNode line = JSON.createObjectNode();
                    line.put("topic", record.topic()).put("partition", record.partition());
                    line.put("offset", record.offset()).put("timestamp", record.timestamp());
                    line.put("timestamp_type", record.timestampType().id);
                    line.put("leader_epoch", record.leaderEpoch().orElse(null));
                    line.put("key", record.key()).put("value", record.value());
                    ArrayNode headers = line.putArray("headers");
                    for (Header header : record.headers()) {
                        headers.addArray().add(header.key()).add(header.value());
                    }
                    lines.write(JSON.writeValueAsString(line));
                    lines.newLine();
                }
            }
        }
    }

    static Map<TopicPartition, Long> listed(Admin admin, List<TopicPartition> partitions, OffsetSpec spec)
            throws Exception {
        Map<TopicPartition, OffsetSpec> specs = new HashMap<>();
        partitions.forEach(partition -> specs.put(partition, spec));
        Map<TopicPartition, Long> offsets = new HashMap<>();
        admin.listOffsets(specs).all().get().forEach((partition, info) -> offsets.put(partition, info.offset()));
        return offsets;
    }

    static Map<TopicPartition, Long> latest(Admin admin, List<TopicPartition> partitions) throws Exception {
        return listed(admin, partitions, OffsetSpec.latest());
    }

    /** ListOffsets with isolation read_committed: the last stable offset of every partition. */
    static void stable(ObjectNode reply) throws Exception {
        try (Admin admin = admin()) {
            Map<TopicPartition, OffsetSpec> specs = new HashMap<>();
            partitions(admin).forEach(partition -> specs.put(partition, OffsetSpec.latest()));
            ArrayNode rows = reply.putArray("partitions");
            admin.listOffsets(specs, new ListOffsetsOptions(IsolationLevel.READ_COMMITTED)).all().get().forEach(
                (partition, info) ->
                    rows.addArray().add(partition.topic()).add(partition.partition()).add(info.offset()));
        }
    }

    /** DescribeProducers of all partitions. */
    static void producers(ObjectNode reply) throws Exception {
        try (Admin admin = admin()) {
            ArrayNode rows = reply.putArray("partitions");
            admin.describeProducers(partitions(admin)).all().get().forEach((partition, states) -> {
                ObjectNode row = rows.addObject();
                row.put("topic", partition.topic()).put("partition", partition.partition());
                ArrayNode producers = row.putArray("producers");
                states.activeProducers().forEach(state -> producers.addArray()
                    .add(state.producerId()).add(state.producerEpoch()).add(state.lastSequence())
                    .add(state.lastTimestamp()).add(state.coordinatorEpoch().orElse(-1))
                    .add(state.currentTransactionStartOffset().orElse(-1)));
            });
        }
    }

    /** What a broker's cache of leader epochs answers that has loaded a checkpoint file; the file may be written to. */
    static void epochs(JsonNode command, ObjectNode reply) throws Exception {
        ArrayNode rows = reply.putArray("answers");
        KafkaScheduler scheduler = new KafkaScheduler(1);
        scheduler.startup();
        for (JsonNode one : command.get("logs")) {
            LeaderEpochFileCache cache = new LeaderEpochFileCache(
                new TopicPartition("any", 0),
                new LeaderEpochCheckpointFile(new java.io.File(one.get("file").asText()), new LogDirFailureChannel(1)),
                scheduler);
            cache.truncateFromStartAsyncFlush(one.get("start").asLong());
            ArrayNode answers = rows.addArray();
            for (JsonNode epoch : one.get("epochs")) {
                Map.Entry<Integer, Long> end = cache.endOffsetFor(epoch.asInt(), one.get("end").asLong());
                answers.addArray().add(end.getKey()).add(end.getValue());
            }
        }
        scheduler.shutdown();
    }

    static OffsetSpec spec(long time) {
        return switch ((int) Math.max(time, -4)) {
            case -1 -> OffsetSpec.latest();
            case -2 -> OffsetSpec.earliest();
            case -3 -> OffsetSpec.maxTimestamp();
            default -> OffsetSpec.forTimestamp(time);
        };
    }

    /** ListOffsets: the earliest, the latest, and for each timestamp that is asked for, or its name as a number. */
    static void offsets(JsonNode command, ObjectNode reply) throws Exception {
        try (Admin admin = admin()) {
            List<TopicPartition> partitions = partitions(admin);
            Map<TopicPartition, Long> earliest = listed(admin, partitions, OffsetSpec.earliest());
            Map<TopicPartition, Long> latest = latest(admin, partitions);
            List<Map<TopicPartition, OffsetSpec>> rounds = new ArrayList<>();
            for (TopicPartition partition : partitions) {
                JsonNode times = command.get("times").path(partition.toString());
                for (int i = 0; i < times.size(); i++) {
                    if (i == rounds.size()) {
                        rounds.add(new HashMap<>());
                    }
                    rounds.get(i).put(partition, spec(times.get(i).asLong()));
                }
            }
            List<ListOffsetsResult> answers = new ArrayList<>();
            for (int i = 0; i < rounds.size(); i++) {
                answers.add(admin.listOffsets(rounds.get(i)));
                if (i >= 20) {
                    answers.get(i - 20).all().get();  // not too many on their way at once
                }
            }
            ArrayNode rows = reply.putArray("partitions");
            for (TopicPartition partition : partitions) {
                ObjectNode row = rows.addObject();
                row.put("topic", partition.topic()).put("partition", partition.partition());
                row.put("earliest", earliest.get(partition)).put("latest", latest.get(partition));
                ArrayNode found = row.putArray("answers");
                for (int i = 0; i < command.get("times").path(partition.toString()).size(); i++) {
                    var answer = answers.get(i).partitionResult(partition).get();
                    found.addArray().add(answer.timestamp()).add(answer.offset()).add(answer.leaderEpoch().orElse(-1));
                }
            }
        }
    }

    static Thread flooding;
    static volatile boolean flowing;
    static final Map<String, Long> ACKNOWLEDGED = new ConcurrentHashMap<>();

    /** Write to a topic, without waiting, until `dry` or until the broker is gone. */
    static void flood(JsonNode command) {
        String topic = command.get("topic").asText();
        int partitions = command.get("partitions").asInt();
        Random random = new Random(command.get("seed").asLong());
        ACKNOWLEDGED.clear();
        flowing = true;
        KafkaProducer<byte[], byte[]> producer = producer("acks", "1", "linger.ms", 1, "retries", 0, "batch.size", 4096,
            "compression.type", "lz4", "max.block.ms", 500, "request.timeout.ms", 1000, "delivery.timeout.ms", 2000);
        flooding = new Thread(() -> {
            for (int number = 0; flowing; number++) {
                try {
                    producer.send(record(topic, partitions, "headers", number, random), (metadata, problem) -> {
                        if (problem == null) {
                            String place = metadata.topic() + "-" + metadata.partition();
                            ACKNOWLEDGED.merge(place, metadata.offset(), Math::max);
                        }
                    });
                    if (number % 64 == 0) {
                        Thread.sleep(8);
                    }
                } catch (Exception problem) {
                    break;
                }
            }
            producer.close(flowing ? Duration.ZERO : Duration.ofSeconds(1));
        });
        flooding.start();
    }

    static void dry(ObjectNode reply) throws Exception {
        flowing = false;
        flooding.join();
        ObjectNode acknowledged = reply.putObject("acknowledged");
        ACKNOWLEDGED.forEach(acknowledged::put);
    }

    static void dump(JsonNode command) throws Exception {
        PrintStream errors = System.err;
        List<String> arguments = texts(command.path("options"));
        arguments.addAll(List.of("--files", String.join(",", texts(command.get("logs")))));
        try (PrintStream file = new PrintStream(command.get("file").asText(), StandardCharsets.UTF_8)) {
            System.setOut(file);
            System.setErr(file);
            DumpLogSegments.main(arguments.toArray(new String[0]));
        } finally {
            System.setErr(errors);
            System.setOut(errors);
        }
    }
}
