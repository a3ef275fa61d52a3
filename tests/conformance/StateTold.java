import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.ScramCredentialInfo;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.clients.admin.UserScramCredentialUpsertion;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Makes groups, transactions, topics and settings on a broker, and prints what its Admin client says of them. */
public class StateTold {
    static String server;

    static Map<String, Object> config(Object... pairs) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", server);
        for (int i = 0; i < pairs.length; i += 2) {
            config.put((String) pairs[i], pairs[i + 1]);
        }
        return config;
    }

    static KafkaProducer<byte[], byte[]> producer(Object... pairs) {
        return new KafkaProducer<>(config(pairs), new ByteArraySerializer(), new ByteArraySerializer());
    }

    static KafkaConsumer<byte[], byte[]> consumer(String group, String protocol) {
        return new KafkaConsumer<>(config("group.id", group, "group.protocol", protocol, "enable.auto.commit", false,
            "auto.offset.reset", "earliest", "client.id", "client-of-" + group),
            new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    static void send(KafkaProducer<byte[], byte[]> producer, String topic, int partition, int records) throws Exception {
        for (int i = 0; i < records; i++) {
            byte[] text = ("v" + i).getBytes(StandardCharsets.UTF_8);
            producer.send(new ProducerRecord<>(topic, partition, text, text));
        }
        producer.flush();
    }

    static Map<String, List<Integer>> byTopic(Collection<TopicPartition> partitions) {
        Map<String, List<Integer>> found = new TreeMap<>();
        partitions.forEach(one -> found.computeIfAbsent(one.topic(), name -> new ArrayList<>()).add(one.partition()));
        found.values().forEach(one -> one.sort(null));
        return found;
    }

    public static void main(String[] args) throws Exception {
        server = args[0];
        Map<String, Object> told = new TreeMap<>();
        Admin admin = Admin.create(config());
        admin.createTopics(List.of(
            new NewTopic("orders", 3, (short) 1).configs(Map.of("retention.ms", "-1", "index.interval.bytes", "2048")),
            new NewTopic("bills", 1, (short) 1).configs(Map.of("cleanup.policy", "compact")),
            new NewTopic("gone", 1, (short) 1))).all().get();
        admin.deleteTopics(List.of("gone")).all().get();
        var broker = new ConfigResource(ConfigResource.Type.BROKER, "");
        var share = new ConfigResource(ConfigResource.Type.GROUP, "sharing");
        admin.incrementalAlterConfigs(Map.of(
            broker, List.of(new AlterConfigOp(new ConfigEntry("log.cleaner.threads", "1"), AlterConfigOp.OpType.SET)),
            share, List.of(new AlterConfigOp(new ConfigEntry("share.auto.offset.reset", "earliest"),
                AlterConfigOp.OpType.SET)))).all().get();
        admin.alterClientQuotas(List.of(
            new ClientQuotaAlteration(new ClientQuotaEntity(Map.of("user", "ann")),
                List.of(new ClientQuotaAlteration.Op("producer_byte_rate", 1000.0))),
            new ClientQuotaAlteration(new ClientQuotaEntity(Map.of("client-id", "c")),
                List.of(new ClientQuotaAlteration.Op("request_percentage", 2.5))))).all().get();
        admin.createAcls(List.of(new AclBinding(new ResourcePattern(ResourceType.TOPIC, "ord", PatternType.PREFIXED),
            new AccessControlEntry("User:ann", "*", AclOperation.READ, AclPermissionType.ALLOW)))).all().get();
        admin.alterUserScramCredentials(List.of(new UserScramCredentialUpsertion("ann",
            new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 8192), "secret"))).all().get();

        try (var plain = producer()) {
            for (int partition = 0; partition < 3; partition++) {
                send(plain, "orders", partition, 30);
            }
        }
        for (String end : List.of("commit", "abort", "open")) {
            var producer = producer("transactional.id", "tx-" + end, "transaction.timeout.ms", 600_000);
            producer.initTransactions();
            producer.beginTransaction();
            send(producer, "bills", 0, 2);
            send(producer, "orders", 1, 2);
            if (end.equals("commit")) {
                producer.sendOffsetsToTransaction(Map.of(new TopicPartition("orders", 2), new OffsetAndMetadata(17, "tx")),
                    new org.apache.kafka.clients.consumer.ConsumerGroupMetadata("in-transaction"));
                producer.commitTransaction();
            } else if (end.equals("abort")) {
                producer.abortTransaction();
            }
        }

        List<Map<String, Object>> commits = new ArrayList<>();
        List<KafkaConsumer<byte[], byte[]>> consumers = List.of(
            consumer("old-style", "classic"), consumer("new-style", "consumer"));
        for (var consumer : consumers) {
            consumer.subscribe(List.of("orders"));
            while (consumer.assignment().size() < 3) {
                consumer.poll(Duration.ofMillis(100));
            }
            for (long offset : new long[] {3, 9, 21}) {
                for (int partition = 0; partition < 3; partition++) {
                    consumer.commitSync(Map.of(new TopicPartition("orders", partition),
                        new OffsetAndMetadata(offset + partition, "at " + offset)));
                }
                Thread.sleep(15);
                commits.add(Map.of("group", consumer.groupMetadata().groupId(), "offset", offset,
                    "time", System.currentTimeMillis()));
                Thread.sleep(15);
            }
        }
        told.put("commits", commits);
        var sharing = new KafkaShareConsumer<>(config("group.id", "sharing", "client.id", "client-of-sharing"),
            new ByteArrayDeserializer(), new ByteArrayDeserializer());
        sharing.subscribe(List.of("orders"));
        for (int got = 0, tries = 0; got < 60 && tries < 100; tries++) {
            got += sharing.poll(Duration.ofMillis(200)).count();
            sharing.commitSync();
        }
        // the coordinator writes offsets after it has answered
        Thread.sleep(500);
        tell(admin, told, consumers);
        System.out.println(new ObjectMapper().writeValueAsString(told));
        System.out.flush();
        System.in.read();  // the clients stay until the broker is gone
        Runtime.getRuntime().halt(0);
    }

    static void tell(Admin admin, Map<String, Object> told, List<KafkaConsumer<byte[], byte[]>> consumers)
            throws Exception {
        for (var consumer : consumers) {
            consumer.poll(Duration.ofMillis(100));
        }
        List<String> names = List.of("old-style", "new-style", "in-transaction");
        Map<String, Object> groups = new TreeMap<>();
        for (var group : admin.describeConsumerGroups(names).all().get().values()) {
            List<Object> members = new ArrayList<>();
            group.members().forEach(one -> members.add(Map.of("id", one.consumerId(), "client", one.clientId(),
                "host", one.host(), "assigned", byTopic(one.assignment().topicPartitions()))));
            Map<String, Object> offsets = new TreeMap<>();
            admin.listConsumerGroupOffsets(group.groupId()).partitionsToOffsetAndMetadata().get()
                .forEach((where, at) -> offsets.put(where.toString(), List.of(at.offset(), at.metadata())));
            groups.put(group.groupId(), Map.of("type", group.type().toString(), "state", group.groupState().toString(),
                "members", members, "offsets", offsets));
        }
        var sharing = admin.describeShareGroups(List.of("sharing")).all().get().get("sharing");
        List<Object> members = new ArrayList<>();
        sharing.members().forEach(one -> members.add(Map.of("id", one.consumerId(), "client", one.clientId(),
            "host", one.host(), "assigned", byTopic(one.assignment().topicPartitions()))));
        Map<String, Object> starts = new TreeMap<>();
        admin.listShareGroupOffsets(Map.of("sharing", new ListShareGroupOffsetsSpec())).partitionsToOffsetInfo("sharing")
            .get().forEach((where, at) -> starts.put(where.toString(), List.of(at.startOffset(), "")));
        groups.put("sharing", Map.of("type", "Share", "state", sharing.groupState().toString(), "members", members,
            "offsets", starts));
        told.put("groups", groups);

        Map<String, Object> transactions = new TreeMap<>();
        List<String> ids = List.of("tx-commit", "tx-abort", "tx-open");
        admin.describeTransactions(ids).all().get().forEach((id, one) -> transactions.put(id, Map.of(
            "state", one.state().toString(), "producer", List.of(one.producerId(), one.producerEpoch()),
            "timeout", one.transactionTimeoutMs(), "start", one.transactionStartTimeMs().orElse(-1),
            "partitions", byTopic(one.topicPartitions()))));
        told.put("transactions", transactions);

        Map<String, Object> topics = new TreeMap<>();
        for (var topic : admin.describeTopics(admin.listTopics(
                new org.apache.kafka.clients.admin.ListTopicsOptions().listInternal(true)).names().get())
                .allTopicNames().get().values()) {
            List<Object> partitions = new ArrayList<>();
            topic.partitions().forEach(one -> partitions.add(Map.of("leader", one.leader().id(),
                "replicas", one.replicas().stream().map(node -> node.id()).toList(),
                "isr", one.isr().stream().map(node -> node.id()).toList())));
            var resource = new ConfigResource(ConfigResource.Type.TOPIC, topic.name());
            Map<String, String> configs = new TreeMap<>();
            admin.describeConfigs(List.of(resource)).all().get().get(resource).entries().forEach(entry -> {
                if (entry.source() == ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG) {
                    configs.put(entry.name(), entry.value());
                }
            });
            topics.put(topic.name(), Map.of("id", topic.topicId().toString(), "partitions", partitions,
                "configs", configs));
        }
        told.put("topics", topics);
        Map<String, Object> features = new TreeMap<>();
        admin.describeFeatures().featureMetadata().get().finalizedFeatures()
            .forEach((name, range) -> features.put(name, range.maxVersionLevel()));
        told.put("features", features);
        List<Object> acls = new ArrayList<>();
        admin.describeAcls(AclBindingFilter.ANY).values().get().forEach(one -> acls.add(List.of(
            one.pattern().name(), one.entry().principal(), one.entry().host())));
        told.put("acls", acls);
        Map<String, Object> quotas = new TreeMap<>();
        admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get()
            .forEach((entity, limits) -> quotas.put(new TreeMap<>(entity.entries()).toString(), limits));
        told.put("quotas", quotas);
        Map<String, Object> scram = new TreeMap<>();
        admin.describeUserScramCredentials().all().get().forEach((user, one) ->
            scram.put(user, one.credentialInfos().get(0).mechanism().mechanismName() + " "
                + one.credentialInfos().get(0).iterations()));
        told.put("scram", scram);
    }
}
