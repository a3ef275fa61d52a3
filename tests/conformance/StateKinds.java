import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.*;
import java.util.function.BooleanSupplier;
import java.util.regex.Pattern;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.acl.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.*;
import org.apache.kafka.common.resource.*;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.serialization.*;

/** Makes groups, transactions and settings of all kinds on a broker,
    and prints what its Admin client says of them. */
public class StateKinds {
    static String server, sasl;
    static Admin admin;

    static Map<String, Object> config(Object... pairs) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", server);
        for (int i = 0; i < pairs.length; i += 2) { config.put((String) pairs[i], pairs[i + 1]); }
        return config;
    }
    static KafkaConsumer<byte[], byte[]> consumer(String group, String protocol, Object... more) {
        Map<String, Object> c = config(more);
        c.put("group.id", group); c.put("group.protocol", protocol); c.put("enable.auto.commit", false);
        c.put("auto.offset.reset", "earliest");
        c.putIfAbsent("client.id", "client-of-" + group);
        return new KafkaConsumer<>(c, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }
    static KafkaShareConsumer<byte[], byte[]> sharing(String group, Object... more) {
        Map<String, Object> c = config(more);
        c.put("group.id", group);
        c.putIfAbsent("client.id", "client-of-" + group);
        return new KafkaShareConsumer<>(c, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }
    static void send(KafkaProducer<byte[], byte[]> producer, String topic, int partition,
        int records) throws Exception {
        for (int i = 0; i < records; i++) {
            byte[] text = ("v" + i + "x".repeat(100)).getBytes(StandardCharsets.UTF_8);
            producer.send(new ProducerRecord<>(topic, partition, ("k" + i % 20).getBytes(), text));
        }
        producer.flush();
    }
    static KafkaProducer<byte[], byte[]> producer(Object... pairs) {
        return new KafkaProducer<>(config(pairs), new ByteArraySerializer(), new ByteArraySerializer());
    }
    static Map<String, List<Integer>> byTopic(Collection<TopicPartition> partitions) {
        Map<String, List<Integer>> found = new TreeMap<>();
        partitions.forEach(one -> found.computeIfAbsent(one.topic(), name -> new ArrayList<>()).add(one.partition()));
        found.values().forEach(one -> one.sort(null));
        return found;
    }
    interface Step { void run() throws Exception; }
    static void attempt(String what, Step step) {
        try { step.run(); }
        catch (Throwable error) { throw new IllegalStateException(what, error); }
    }
    static void until(BooleanSupplier done, Runnable each) throws Exception {
        for (int i = 0; i < 5000; i++) {
            if (done.getAsBoolean()) {
                return;
            }
            each.run();
            Thread.sleep(20);
        }
        throw new IllegalStateException("in vain");
    }
    static final List<KafkaConsumer<byte[], byte[]>> open = new ArrayList<>();
    static final List<KafkaShareConsumer<byte[], byte[]>> openShares = new ArrayList<>();

    static KafkaConsumer<byte[], byte[]> keep(KafkaConsumer<byte[], byte[]> one) { open.add(one); return one; }

    static void commit(KafkaConsumer<?, ?> one, String topic, int partition, long offset, String text) {
        one.commitSync(Map.of(new TopicPartition(topic, partition), new OffsetAndMetadata(offset, Optional.of(0),
            text)));
    }

    public static void main(String[] args) throws Exception {
        server = args[0]; sasl = args[1];
        Map<String, Object> told = new TreeMap<>();
        admin = Admin.create(config());
        attempt("topics", () -> {
            admin.createTopics(List.of(
                new NewTopic("orders", 3, (short) 1).configs(Map.of("index.interval.bytes", "2048")),
                new NewTopic("ordinary", 2, (short) 1),
                new NewTopic("bills", 1, (short) 1).configs(Map.of("cleanup.policy", "compact,delete")),
                new NewTopic("short-lived", 2, (short) 1),
                new NewTopic("again", 1, (short) 1).configs(Map.of("retention.ms", "7"))
                )).all().get();
            Thread.sleep(300);
            admin.deleteTopics(List.of("again")).all().get();
            Thread.sleep(300);
            admin.createTopics(List.of(new NewTopic("again", 2, (short) 1))).all().get();
            admin.createPartitions(Map.of("ordinary", NewPartitions.increaseTo(4))).all().get();
        });
        attempt("configs", () -> {
            Map<ConfigResource, Collection<AlterConfigOp>> ops = new HashMap<>();
            ops.put(new ConfigResource(ConfigResource.Type.BROKER, ""),
                List.of(new AlterConfigOp(new ConfigEntry("log.cleaner.threads", "1"), AlterConfigOp.OpType.SET)));
            ops.put(new ConfigResource(ConfigResource.Type.BROKER, "1"),
                List.of(new AlterConfigOp(new ConfigEntry("log.retention.ms", "99999999"),
                AlterConfigOp.OpType.SET)));
            ops.put(new ConfigResource(ConfigResource.Type.GROUP, "sharing"),
                List.of(new AlterConfigOp(new ConfigEntry("share.auto.offset.reset", "earliest"),
                AlterConfigOp.OpType.SET), new AlterConfigOp(new ConfigEntry("share.record.lock.duration.ms",
                "60000"), AlterConfigOp.OpType.SET)));
            ops.put(new ConfigResource(ConfigResource.Type.GROUP, "sharing-two"),
                List.of(new AlterConfigOp(new ConfigEntry("share.auto.offset.reset", "earliest"),
                AlterConfigOp.OpType.SET)));
            ops.put(new ConfigResource(ConfigResource.Type.CLIENT_METRICS, "watch"),
                List.of(new AlterConfigOp(new ConfigEntry("interval.ms", "60000"), AlterConfigOp.OpType.SET),
                new AlterConfigOp(new ConfigEntry("metrics", "org.apache.kafka."), AlterConfigOp.OpType.SET)));
            ops.put(new ConfigResource(ConfigResource.Type.TOPIC, "orders"),
                List.of(new AlterConfigOp(new ConfigEntry("retention.ms", "-1"), AlterConfigOp.OpType.SET)));
            admin.incrementalAlterConfigs(ops).all().get();
            admin.incrementalAlterConfigs(Map.of(new ConfigResource(ConfigResource.Type.TOPIC, "orders"),
                List.of(new AlterConfigOp(new ConfigEntry("segment.ms", "100000"), AlterConfigOp.OpType.SET))))
                .all().get();
            admin.incrementalAlterConfigs(Map.of(new ConfigResource(ConfigResource.Type.TOPIC, "orders"),
                List.of(new AlterConfigOp(new ConfigEntry("segment.ms", ""), AlterConfigOp.OpType.DELETE)))).all()
                .get();
        });
        attempt("quotas", () -> {
            List<ClientQuotaAlteration> all = new ArrayList<>();
            List<Map<String, String>> entities = new ArrayList<>();
            entities.add(Map.of("user", "ann"));
            entities.add(Map.of("client-id", "c"));
            entities.add(Map.of("user", "ann", "client-id", "c"));
            for (String[] who : new String[][] {{"user"}, {"client-id"}, {"user", "client-id"}}) {
                Map<String, String> entity = new HashMap<>();
                for (String one : who) { entity.put(one, null); }
                entities.add(entity);
            }
            Map<String, String> mixed = new HashMap<>(); mixed.put("user", "bob"); mixed.put("client-id", null);
                entities.add(mixed);
            double at = 1000;
            for (var entity : entities) {
                all.add(new ClientQuotaAlteration(new ClientQuotaEntity(entity),
                    List.of(new ClientQuotaAlteration.Op("producer_byte_rate", at),
                    new ClientQuotaAlteration.Op("controller_mutation_rate", at / 3),
                    new ClientQuotaAlteration.Op("request_percentage", at / 7),
                    new ClientQuotaAlteration.Op("consumer_byte_rate", at))));
                at += 1;
            }
            Map<String, String> ip = new HashMap<>(); ip.put("ip", null);
            all.add(new ClientQuotaAlteration(new ClientQuotaEntity(ip),
                List.of(new ClientQuotaAlteration.Op("connection_creation_rate", 500.0))));
            all.add(new ClientQuotaAlteration(new ClientQuotaEntity(Map.of("ip", "10.0.0.1")),
                List.of(new ClientQuotaAlteration.Op("connection_creation_rate", 50.0))));
            admin.alterClientQuotas(all).all().get();
            admin.alterClientQuotas(List.of(new ClientQuotaAlteration(new ClientQuotaEntity(Map.of("user", "ann")),
                List.of(new ClientQuotaAlteration.Op("consumer_byte_rate", null))))).all().get();
        });
        attempt("acls", () -> {
            List<AclBinding> all = new ArrayList<>();
            for (ResourceType type : ResourceType.values()) {
                if (type == ResourceType.UNKNOWN || type == ResourceType.ANY) { continue; }
                for (PatternType pattern : List.of(PatternType.LITERAL, PatternType.PREFIXED)) {
                    if (type == ResourceType.CLUSTER && pattern == PatternType.PREFIXED) { continue; }
                    for (AclOperation operation : AclOperation.values()) {
                        if (!org.apache.kafka.security.authorizer.AclEntry.supportedOperations(type)
                            .contains(operation)) { continue; }
                        String name = type == ResourceType.CLUSTER ? "kafka-cluster" : type == ResourceType.USER
                            ? "User:x" : "r-" + type;
                        all.add(new AclBinding(new ResourcePattern(type, name, pattern),
                            new AccessControlEntry("User:ann", operation == AclOperation.DESCRIBE ? "10.1.2.3"
                            : "*", operation, operation == AclOperation.ALTER ? AclPermissionType.DENY
                            : AclPermissionType.ALLOW)));
                    }
                }
            }
            all.add(new AclBinding(new ResourcePattern(ResourceType.TOPIC, "*", PatternType.LITERAL),
                new AccessControlEntry("User:*", "*", AclOperation.READ, AclPermissionType.ALLOW)));
            all.add(new AclBinding(new ResourcePattern(ResourceType.TOPIC, "dropped", PatternType.LITERAL),
                new AccessControlEntry("User:*", "*", AclOperation.READ, AclPermissionType.ALLOW)));
            admin.createAcls(all).all().get();
            admin.deleteAcls(List.of(new AclBindingFilter(new ResourcePatternFilter(ResourceType.TOPIC, "dropped",
                PatternType.LITERAL), AccessControlEntryFilter.ANY))).all().get();
        });
        attempt("scram", () -> {
            admin.alterUserScramCredentials(List.of(new UserScramCredentialUpsertion("ann",
                new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), "secret"))).all().get();
            admin.alterUserScramCredentials(List.of(
                new UserScramCredentialUpsertion("ann", new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 8192),
                    "secret"),
                new UserScramCredentialUpsertion("zoë", new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 5000),
                    "secret"),
                new UserScramCredentialUpsertion("bob", new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096),
                    "secret"))).all().get();
            admin.alterUserScramCredentials(List.of(new UserScramCredentialDeletion("bob",
                ScramMechanism.SCRAM_SHA_256))).all().get();
        });
        attempt("tokens", () -> {
            Admin ann = Admin.create(config("bootstrap.servers", sasl, "security.protocol", "SASL_PLAINTEXT",
                "sasl.mechanism", "SCRAM-SHA-256",
                "sasl.jaas.config", "org.apache.kafka.common.security.scram.ScramLoginModule required username=\"ann\" password=\"secret\";"));
            until(() -> {
                try { return ann.describeDelegationToken().delegationTokens().get().isEmpty(); }
                catch (Exception error) { return false; }  // the broker may not know the new password yet
            }, () -> { });
            var one = ann.createDelegationToken(new CreateDelegationTokenOptions()
                .renewers(List.of(new KafkaPrincipal("User", "bob"))).maxLifetimeMs(86_400_000)).delegationToken()
                .get();
            var two = ann.createDelegationToken(new CreateDelegationTokenOptions().maxLifetimeMs(7_200_000))
                .delegationToken().get();
            var three = ann.createDelegationToken().delegationToken().get();
            until(() -> {
                try { return ann.describeDelegationToken().delegationTokens().get().size() == 3; }
                catch (Exception error) { throw new IllegalStateException(error); }
            }, () -> { });
            ann.renewDelegationToken(one.hmac(), new RenewDelegationTokenOptions().renewTimePeriodMs(3_600_000))
                .expiryTimestamp().get();
            until(() -> {
                try {
                    ann.expireDelegationToken(three.hmac(), new ExpireDelegationTokenOptions()
                        .expiryTimePeriodMs(-1)).expiryTimestamp().get();
                    return true;
                } catch (Exception error) {
                    return error.getMessage().contains("not found");  // what the broker answers once it is gone
                }
            }, () -> { });
            until(() -> {
                try { return ann.describeDelegationToken().delegationTokens().get().size() == 2; }
                catch (Exception error) { throw new IllegalStateException(error); }
            }, () -> { });
            List<Object> tokens = new ArrayList<>();
            for (var token : ann.describeDelegationToken().delegationTokens().get()) {
                var info = token.tokenInfo();
                tokens.add(List.of(info.tokenId(), info.owner().toString(), info.tokenRequester().toString(),
                    info.issueTimestamp(), info.maxTimestamp(), info.expiryTimestamp(), info.renewersAsString()
                    .stream().sorted().toList()));
            }
            told.put("tokens", tokens);
            ann.close();
        });
        attempt("records", () -> {
            try (var plain = producer()) {
                for (int partition = 0; partition < 3; partition++) { send(plain, "orders", partition, 30); }
                for (int partition = 0; partition < 4; partition++) { send(plain, "ordinary", partition, 10); }
                send(plain, "short-lived", 0, 5);
            }
        });
        attempt("regex", () -> {
            var a = keep(consumer("by-regex", "consumer", "group.remote.assignor", "range", "client.rack", "rack-a"));
            a.subscribe(new SubscriptionPattern("ord.*"));
            until(() -> a.assignment().size() == 7, () -> a.poll(Duration.ofMillis(50)));
            commit(a, "orders", 0, 4, "regex"); commit(a, "ordinary", 3, 5, "");
        });
        attempt("two members", () -> {
            var a = keep(consumer("pair", "consumer", "group.remote.assignor", "uniform", "group.instance.id",
                "static-a", "client.id", "a"));
            var b = keep(consumer("pair", "consumer", "client.id", "b"));
            a.subscribe(List.of("orders", "bills")); b.subscribe(List.of("orders"));
            until(() -> a.assignment().size() + b.assignment().size() == 4 && !b.assignment().isEmpty(), () -> {
                a.poll(Duration.ofMillis(20)); b.poll(Duration.ofMillis(20)); });
            commit(b, "orders", b.assignment().iterator().next().partition(), 11, "of b");
        });
        attempt("unknown topic", () -> {
            var a = keep(consumer("waits", "consumer"));
            a.subscribe(List.of("no-such-topic", "bills"));
            until(() -> a.assignment().size() == 1, () -> a.poll(Duration.ofMillis(20)));
        });
        attempt("classic pair", () -> {
            String sticky = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor";
            var a = keep(consumer("classic-pair", "classic", "partition.assignment.strategy", sticky,
                "group.instance.id", "i-a", "client.id", "a", "session.timeout.ms", 30000));
            var b = keep(consumer("classic-pair", "classic", "partition.assignment.strategy", sticky, "client.id",
                "b", "client.rack", "r"));
            a.subscribe(List.of("orders")); b.subscribe(Pattern.compile("ord.*"));
            until(() -> a.assignment().size() + b.assignment().size() == 7 && !b.assignment().isEmpty()
                && !a.assignment().isEmpty(), () -> { a.poll(Duration.ofMillis(20)); b.poll(Duration.ofMillis(20));
                });
            boolean[] done = {false};
            until(() -> done[0], () -> {
                a.poll(Duration.ofMillis(20));
                b.poll(Duration.ofMillis(20));
                try { commit(a, "orders", a.assignment().iterator().next().partition(), 12, "of a"); done[0] = true; }
                catch (org.apache.kafka.common.errors.RebalanceInProgressException | NoSuchElementException again) { }
            });
        });
        attempt("moved to consumer", () -> {
            try (var a = consumer("moved", "classic")) {
                a.subscribe(List.of("orders"));
                until(() -> a.assignment().size() == 3, () -> a.poll(Duration.ofMillis(50)));
                commit(a, "orders", 1, 7, "classic");
            }
            var b = keep(consumer("moved", "consumer"));
            b.subscribe(List.of("orders"));
            until(() -> b.assignment().size() == 3, () -> b.poll(Duration.ofMillis(50)));
            commit(b, "orders", 2, 8, "consumer");
        });
        attempt("simple", () -> {
            var a = keep(consumer("simple", "classic"));
            a.assign(List.of(new TopicPartition("short-lived", 0), new TopicPartition("orders", 0)));
            commit(a, "short-lived", 0, 3, "will go with its topic"); commit(a, "orders", 0, 9,
                "é\u0000\uD83D\uDE00");
            a.commitSync(Map.of(new TopicPartition("orders", 1), new OffsetAndMetadata(9)));
            commit(a, "orders", 2, 1, "dropped");
        });
        attempt("empty groups", () -> {
            for (String protocol : List.of("classic", "consumer")) {
                for (String name : List.of("left-", "deleted-")) {
                    try (var a = consumer(name + protocol, protocol)) {
                        a.subscribe(List.of("orders"));
                        until(() -> a.assignment().size() == 3, () -> a.poll(Duration.ofMillis(50)));
                        commit(a, "orders", 1, 7, protocol);
                    }
                }
            }
            for (String name : List.of("deleted-classic", "deleted-consumer")) {
                until(() -> { try { admin.deleteConsumerGroups(List.of(name)).all().get(); return true;
                    } catch (Exception e) { return false; } }, () -> { });
            }
            try (var a = consumer("static-left", "consumer", "group.instance.id", "gone-for-a-while")) {
                a.subscribe(List.of("orders"));
                until(() -> a.assignment().size() == 3, () -> a.poll(Duration.ofMillis(50)));
            }
        });
        attempt("offsets altered", () -> {
            admin.alterConsumerGroupOffsets("left-classic", Map.of(new TopicPartition("orders", 2),
                new OffsetAndMetadata(21, "altered"))).all().get();
            admin.alterConsumerGroupOffsets("never-joined", Map.of(new TopicPartition("orders", 0),
                new OffsetAndMetadata(2))).all().get();
            admin.deleteConsumerGroupOffsets("left-consumer", Set.of(new TopicPartition("orders", 1))).all().get();
        });
        attempt("share", () -> {
            var a = sharing("sharing", "client.id", "sa", "share.acknowledgement.mode", "explicit", "client.rack",
                "r1");
            var b = sharing("sharing", "client.id", "sb", "share.acknowledgement.mode", "explicit");
            openShares.add(a); openShares.add(b);
            a.subscribe(List.of("orders")); b.subscribe(List.of("orders", "bills"));
            int[] got = {0, 0};
            for (int round = 0; round < 40 && (got[0] < 30 || round < 5); round++) {
                int i = 0;
                for (var one : a.poll(Duration.ofMillis(200))) {
                    a.acknowledge(one, i % 7 == 3 ? AcknowledgeType.REJECT : i % 5 == 2 ? AcknowledgeType.RELEASE
                        : AcknowledgeType.ACCEPT);
                    i++; got[0]++;
                }
                a.commitSync();
                if (round > 2) { i = 0; for (var one : b.poll(Duration.ofMillis(200))) { b.acknowledge(one,
                    i++ % 3 == 0 ? AcknowledgeType.RELEASE : AcknowledgeType.ACCEPT); } b.commitSync(); }
            }
            b.poll(Duration.ofMillis(300));  // acquired, and not acknowledged
        });
        attempt("share offsets", () -> {
            for (String name : List.of("sharing-two", "sharing-gone")) {
                try (var a = sharing(name)) {
                    a.subscribe(List.of("orders", "ordinary"));
                    for (int i = 0; i < 8; i++) { a.poll(Duration.ofMillis(150)); a.commitSync(); }
                }
            }
            Thread.sleep(500);
            admin.alterShareGroupOffsets("sharing-two", Map.of(new TopicPartition("orders", 1), 13L)).all().get();
            admin.deleteShareGroupOffsets("sharing-two", Set.of("ordinary")).all().get();
            admin.deleteShareGroups(List.of("sharing-gone")).all().get();
        });
        attempt("transactions", () -> {
            for (String end : List.of("commit", "abort", "open", "empty", "many", "fenced", "two-phase")) {
                var producer = end.equals("two-phase") ? producer("transactional.id", "tx-" + end,
                    "transaction.two.phase.commit.enable", true)
                    : producer("transactional.id", "tx-" + end, "transaction.timeout.ms", 600_000);
                producer.initTransactions();
                if (end.equals("empty")) { continue; }
                producer.beginTransaction();
                send(producer, "bills", 0, 2); send(producer, "orders", 1, 2);
                if (!end.equals("fenced")) {
                    producer.sendOffsetsToTransaction(Map.of(new TopicPartition("orders", 2),
                        new OffsetAndMetadata(17, "tx")), new ConsumerGroupMetadata("group-" + end));
                }
                if (end.equals("commit") || end.equals("many")) { producer.commitTransaction(); }
                else if (end.equals("abort")) { producer.abortTransaction(); }
                else if (end.equals("fenced")) { admin.fenceProducers(List.of("tx-fenced")).all().get(); }
                for (int i = 0; end.equals("many") && i < 9; i++) {
                    producer.beginTransaction(); send(producer, "orders", i % 3, 1);
                    producer.sendOffsetsToTransaction(Map.of(new TopicPartition("orders", i % 3),
                        new OffsetAndMetadata(20 + i, "tx")), new ConsumerGroupMetadata("group-many"));
                    if (i % 3 == 1) { producer.abortTransaction(); } else { producer.commitTransaction(); }
                }
            }
        });
        attempt("topic gone", () -> { admin.deleteTopics(List.of("short-lived")).all().get(); });
        attempt("compaction", () -> {
            admin.incrementalAlterConfigs(Map.of(new ConfigResource(ConfigResource.Type.TOPIC,
                "__consumer_offsets"), List.of(
                new AlterConfigOp(new ConfigEntry("internal.segment.bytes", "3000"), AlterConfigOp.OpType.SET),
                new AlterConfigOp(new ConfigEntry("min.cleanable.dirty.ratio", "0.01"), AlterConfigOp.OpType.SET)),
                new ConfigResource(ConfigResource.Type.TOPIC, "__transaction_state"), List.of(
                new AlterConfigOp(new ConfigEntry("internal.segment.bytes", "1500"), AlterConfigOp.OpType.SET),
                new AlterConfigOp(new ConfigEntry("min.cleanable.dirty.ratio", "0.01"), AlterConfigOp.OpType.SET))))
                    .all().get();
            for (int i = 0; i < 150; i++) {
                for (String group : List.of("busy-1", "busy-2", "busy-3")) {
                    admin.alterConsumerGroupOffsets(group, Map.of(new TopicPartition("orders", i % 3),
                        new OffsetAndMetadata(i, "round " + i))).all().get();
                }
            }
            var tx = producer("transactional.id", "tx-busy");
            tx.initTransactions();
            for (int i = 0; i < 15; i++) { tx.beginTransaction(); send(tx, "orders", 0, 1); tx.commitTransaction(); }
        });
        List<Map<String, Object>> commits = new ArrayList<>();
        attempt("as of", () -> {
            for (int i = 0; i < 4; i++) {
                Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                for (int partition = 0; partition < 3; partition++) {
                    offsets.put(new TopicPartition("orders", partition), new OffsetAndMetadata(i + partition));
                }
                admin.alterConsumerGroupOffsets("timed", offsets).all().get();
                Thread.sleep(15);
                commits.add(Map.of("time", System.currentTimeMillis(), "offset", i));
                Thread.sleep(15);
            }
        });
        told.put("commits", commits);
        attempt("streams", () -> streams());
        System.out.println("waiting"); System.out.flush();
        new Scanner(System.in).nextLine();
        attempt("offsets expire", () -> until(() -> {
            try { return admin.listGroups().all().get().stream().noneMatch(o -> o.groupId().equals("kept-shortly")); }
            catch (Exception error) { throw new IllegalStateException(error); }
        }, () -> open.forEach(one -> one.poll(Duration.ofMillis(20)))));
        for (int i = 0; i < 40; i++) { open.forEach(one -> one.poll(Duration.ofMillis(20))); Thread.sleep(20); }
        attempt("streams again", () -> streams());
        attempt("tell", () -> tell(told));
        System.out.println(new ObjectMapper().writeValueAsString(told));
        System.out.flush();
        System.in.read();
        Runtime.getRuntime().halt(0);
    }

    static void tell(Map<String, Object> told) throws Exception {
        Map<String, Object> groups = new TreeMap<>();
        List<String> consumers = new ArrayList<>(), shares = new ArrayList<>(), streams = new ArrayList<>();
        admin.listGroups().all().get().forEach(one -> {
            String type = one.type().map(Object::toString).orElse("?");
            (type.equals("Share") ? shares : type.equals("Streams") ? streams : consumers).add(one.groupId());
        });
        for (var group : admin.describeConsumerGroups(consumers).all().get().values()) {
            List<Object> members = new ArrayList<>();
            for (var one : group.members()) {
                Map<String, Object> m = new TreeMap<>();
                m.put("id", one.consumerId()); m.put("client", one.clientId()); m.put("host", one.host());
                    m.put("instance", one.groupInstanceId().orElse(null));
                m.put("assigned", byTopic(one.assignment().topicPartitions()));
                m.put("target", one.targetAssignment().map(t -> (Object) byTopic(t.topicPartitions())).orElse(null));
                m.put("epoch", one.memberEpoch().orElse(null)); 
                members.add(m);
            }
            Map<String, Object> offsets = new TreeMap<>();
            admin.listConsumerGroupOffsets(group.groupId()).partitionsToOffsetAndMetadata().get()
                .forEach((where, at) -> offsets.put(where.toString(), List.of(at.offset(), at.metadata(),
                    at.leaderEpoch().orElse(-1))));
            Map<String, Object> g = new TreeMap<>(Map.of("type", group.type().toString(), "state",
                group.groupState().toString(), "members", members, "offsets", offsets, "assignor",
                group.partitionAssignor()));
            g.put("epoch", group.groupEpoch().orElse(null)); g.put("targetEpoch", group.targetAssignmentEpoch()
                .orElse(null));
            groups.put(group.groupId(), g);
        }
        for (var group : admin.describeShareGroups(shares).all().get().values()) {
            List<Object> members = new ArrayList<>();
            for (var one : group.members()) {
                Map<String, Object> m = new TreeMap<>();
                m.put("id", one.consumerId()); m.put("client", one.clientId()); m.put("host", one.host());
                m.put("assigned", byTopic(one.assignment().topicPartitions())); m.put("epoch", one.memberEpoch());
                members.add(m);
            }
            Map<String, Object> starts = new TreeMap<>();
            admin.listShareGroupOffsets(Map.of(group.groupId(), new ListShareGroupOffsetsSpec()))
                .partitionsToOffsetInfo(group.groupId()).get()
                .forEach((where, at) -> { if (at != null) { starts.put(where.toString(), List.of(at.startOffset(),
                    at.leaderEpoch().orElse(-1), at.lag().orElse(-1L))); } });
            groups.put(group.groupId(), Map.of("type", "Share", "state", group.groupState().toString(), "members",
                members, "offsets", starts, "epoch", group.groupEpoch(), "targetEpoch",
                group.targetAssignmentEpoch()));
        }
        for (var group : admin.describeStreamsGroups(streams).all().get().values()) {
            List<Object> members = new ArrayList<>();
            for (var one : group.members()) {
                Map<String, Object> assigned = new TreeMap<>();
                one.assignment().activeTasks().forEach(task -> assigned.put(task.subtopologyId(), task.partitions()));
                members.add(Map.of("id", one.memberId(), "client", one.clientId(), "host", one.clientHost(),
                    "assigned", assigned, "epoch", one.memberEpoch()));
            }
            groups.put(group.groupId(), Map.of("type", "Streams", "state", group.groupState().toString(), "members",
                members, "offsets", Map.of(), "epoch", group.groupEpoch(), "targetEpoch",
                group.targetAssignmentEpoch()));
        }
        told.put("groups", groups);
        told.put("streams", streams);
        Map<String, Object> transactions = new TreeMap<>();
        List<String> ids = admin.listTransactions().all().get().stream().map(TransactionListing::transactionalId)
            .toList();
        admin.describeTransactions(ids).all().get().forEach((id, one) -> transactions.put(id, Map.of("state",
            one.state().toString(), "producer", List.of(one.producerId(), one.producerEpoch()), "timeout",
            one.transactionTimeoutMs(), "start", one.transactionStartTimeMs().orElse(-1), "partitions",
            byTopic(one.topicPartitions()))));
        told.put("transactions", transactions);
        Map<String, Object> topics = tellTopics(told);
        Map<String, Object> configs = new TreeMap<>();
        List<ConfigResource> resources = new ArrayList<>();
        topics.keySet().forEach(one -> resources.add(new ConfigResource(ConfigResource.Type.TOPIC, one)));
        for (String one : List.of("", "1")) { resources.add(new ConfigResource(ConfigResource.Type.BROKER, one)); }
        resources.addAll(admin.listConfigResources(Set.of(ConfigResource.Type.GROUP,
            ConfigResource.Type.CLIENT_METRICS), new ListConfigResourcesOptions()).all().get());
        for (var resource : resources) {
            admin.describeConfigs(List.of(resource)).all().get().get(resource).entries().forEach(entry -> {
                if (entry.source().name().startsWith("DYNAMIC") && !(resource.type() == ConfigResource.Type.TOPIC
                    && entry.source() != ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG) && !(resource.name()
                    .equals("1") && entry.source() != ConfigEntry.ConfigSource.DYNAMIC_BROKER_CONFIG)) {
                    configs.put(resource.type() + "|" + resource.name() + "|" + entry.name(),
                        String.valueOf(entry.value()));
                }
            });
        }
        told.put("configs", configs);
        Map<String, Object> features = new TreeMap<>();
        admin.describeFeatures().featureMetadata().get().finalizedFeatures().forEach((name, range) ->
            features.put(name, range.maxVersionLevel()));
        told.put("features", features);
        List<Object> acls = new ArrayList<>();
        admin.describeAcls(AclBindingFilter.ANY).values().get().forEach(one -> acls.add(List.of(one.pattern()
            .resourceType().toString(), one.pattern().name(), one.pattern().patternType().toString(), one.entry()
            .principal(), one.entry().host(), one.entry().operation().toString(), one.entry().permissionType()
            .toString())));
        told.put("acls", acls);
        List<Object> quotas = new ArrayList<>();
        admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get().forEach((entity, limits) ->
            quotas.add(List.of(entity.entries(), limits)));
        told.put("quotas", quotas);
        List<Object> scram = new ArrayList<>();
        admin.describeUserScramCredentials().all().get().forEach((user, one) -> one.credentialInfos().forEach(info ->
            scram.add(List.of(user, info.mechanism().mechanismName(), info.iterations()))));
        told.put("scram", scram);
        var quorum = admin.describeMetadataQuorum().quorumInfo().get();
        told.put("quorum", Map.of("voters", quorum.voters().stream().map(one -> List.of(one.replicaId(),
            one.replicaDirectoryId().toString())).toList(), "leader", quorum.leaderId(), "epoch",
            quorum.leaderEpoch(), "highWatermark", quorum.highWatermark()));
        Map<String, Object> ends = new TreeMap<>();
        told.put("time", System.currentTimeMillis());
    }

    static Map<String, Object> tellTopics(Map<String, Object> told) throws Exception {
        Map<String, Object> topics = new TreeMap<>();
        for (var topic : admin.describeTopics(admin.listTopics(new ListTopicsOptions().listInternal(true)).names()
            .get()).allTopicNames().get().values()) {
            List<Object> partitions = new ArrayList<>();
            topic.partitions().forEach(one -> partitions.add(Map.of("leader", one.leader() == null ? -1
                : one.leader().id(), "replicas", one.replicas().stream().map(node -> node.id()).toList(), "isr",
                one.isr().stream().map(node -> node.id()).toList(),
                "elr", one.elr() == null ? List.of() : one.elr().stream().map(node -> node.id()).toList(),
                    "last_known_elr", one.lastKnownElr() == null ? List.of() : one.lastKnownElr().stream()
                    .map(node -> node.id()).toList())));
            topics.put(topic.name(), new TreeMap<>(Map.of("id", topic.topicId().toString(), "partitions",
                partitions)));
        }
        told.put("topics", topics);
        List<Object> brokers = new ArrayList<>();
        admin.describeCluster(new DescribeClusterOptions().includeFencedBrokers(true)).nodes().get().forEach(one ->
            brokers.add(Arrays.asList(one.id(), one.host(), one.port(), one.rack(), one.isFenced())));
        told.put("brokers", brokers);
        return topics;
    }

    static final Map<String,
        org.apache.kafka.common.message.StreamsGroupHeartbeatResponseData> streaming = new TreeMap<>();
    static void streams() throws Exception {
        for (String member : List.of("AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg")) {
            for (int round = 0; round < 3; round++) {
                var known = streaming.get(member);
                var data = new org.apache.kafka.common.message.StreamsGroupHeartbeatRequestData()
                    .setGroupId("streaming").setMemberId(member)
                    .setMemberEpoch(known == null ? 0 : known.memberEpoch()).setRebalanceTimeoutMs(600000);
                if (known == null) {
                    data.setProcessId("process-" + member)
                        .setTopology(new org.apache.kafka.common.message.StreamsGroupHeartbeatRequestData.Topology()
                        .setEpoch(0).setSubtopologies(List.of(
                        new org.apache.kafka.common.message.StreamsGroupHeartbeatRequestData.Subtopology()
                            .setSubtopologyId("0").setSourceTopics(List.of("orders")),
                        new org.apache.kafka.common.message.StreamsGroupHeartbeatRequestData.Subtopology()
                            .setSubtopologyId("1").setSourceTopics(List.of("bills")))))
                        .setActiveTasks(List.of()).setStandbyTasks(List.of()).setWarmupTasks(List.of())
                            .setClientTags(List.of());
                } else if (known.activeTasks() != null) {
                    data.setActiveTasks(known.activeTasks().stream().map(one ->
                        new org.apache.kafka.common.message.StreamsGroupHeartbeatRequestData.TaskIds()
                        .setSubtopologyId(one.subtopologyId()).setPartitions(one.partitions())).toList())
                        .setStandbyTasks(List.of()).setWarmupTasks(List.of());
                }
                var body = org.apache.kafka.common.protocol.MessageUtil.toByteBufferAccessor(data, (short) 0)
                    .buffer();
                for (var node : admin.describeCluster().nodes().get()) {
                    try (var socket = new java.net.Socket(node.host(), node.port())) {
                        var out = new java.io.DataOutputStream(socket.getOutputStream());
                        out.writeInt(8 + 5 + 1 + body.remaining());
                        out.writeShort(88); out.writeShort(0); out.writeInt(1); out.writeShort(3);
                            out.writeBytes("raw"); out.writeByte(0);
                        byte[] bytes = new byte[body.remaining()]; body.duplicate().get(bytes); out.write(bytes);
                            out.flush();
                        var in = new java.io.DataInputStream(socket.getInputStream());
                        byte[] answer = new byte[in.readInt()]; in.readFully(answer);
                        var buffer = java.nio.ByteBuffer.wrap(answer, 5, answer.length - 5);
                        var got = new org.apache.kafka.common.message.StreamsGroupHeartbeatResponseData(new org.apache.kafka.common.protocol.ByteBufferAccessor(buffer.slice()), (short) 0);
                        if (got.errorCode() == 0) { if (got.activeTasks() == null && known != null) {
                            got.setActiveTasks(known.activeTasks()); } streaming.put(member, got); break; }
                    }
                }
            }
        }
    }
}
