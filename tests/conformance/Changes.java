import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.*;
import java.util.function.Predicate;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.common.acl.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.*;
import org.apache.kafka.common.resource.*;

/** Changes a cluster step by step, and prints after each what its Admin client says, with the offset of the metadata
    log and the time that this is the state of. */
public class Changes {
    static Admin admin;

    interface Change { void make() throws Exception; }

    record Step(Change change, Predicate<Map<String, Object>> isThere) {}

    static Map<String, Object> tell() throws Exception {
        Map<String, Object> told = new TreeMap<>();
        Map<String, Object> topics = new TreeMap<>(), configs = new TreeMap<>(), quotas = new TreeMap<>();
        for (var one : admin.describeTopics(admin.listTopics().names().get()).allTopicNames().get().values()) {
            topics.put(one.name(), List.of(one.topicId().toString(), one.partitions().size()));
        }
        for (String name : topics.keySet()) {
            var resource = new ConfigResource(ConfigResource.Type.TOPIC, name);
            admin.describeConfigs(List.of(resource)).all().get().get(resource).entries().forEach(entry -> {
                if (entry.source() == ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG) {
                    configs.put(name + "|" + entry.name(), entry.value());
                }
            });
        }
        List<String> acls = new ArrayList<>();
        admin.describeAcls(AclBindingFilter.ANY).values().get().forEach(one -> acls.add(one.pattern().name() + "|"
            + one.entry().principal() + "|" + one.entry().operation()));
        Collections.sort(acls);
        admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get().forEach((entity, limits) ->
            quotas.put(entity.entries().get("user"), limits));
        told.put("topics", topics);
        told.put("configs", configs);
        told.put("acls", acls);
        told.put("quotas", quotas);
        return told;
    }

    static boolean has(Map<String, Object> told, String kind, String key, Object value) {
        return value.equals(((Map<?, ?>) told.get(kind)).get(key));
    }

    static Step config(String topic, String name, String value) {
        var resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        var kind = value == null ? AlterConfigOp.OpType.DELETE : AlterConfigOp.OpType.SET;
        var ops = List.of(new AlterConfigOp(new ConfigEntry(name, value), kind));
        return new Step(() -> admin.incrementalAlterConfigs(Map.of(resource, ops)).all().get(), told ->
            Objects.equals(((Map<?, ?>) told.get("configs")).get(topic + "|" + name), value));
    }

    static Step quota(String user, Double limit) {
        var alteration = new ClientQuotaAlteration(new ClientQuotaEntity(Map.of("user", user)),
            List.of(new ClientQuotaAlteration.Op("producer_byte_rate", limit)));
        return new Step(() -> admin.alterClientQuotas(List.of(alteration)).all().get(), told -> limit == null
            ? !((Map<?, ?>) told.get("quotas")).containsKey(user)
            : has(told, "quotas", user, Map.of("producer_byte_rate", limit)));
    }

    static Step create(String topic, int partitions) {
        return new Step(() -> admin.createTopics(List.of(new NewTopic(topic, partitions, (short) 1))).all().get(),
            told -> ((Map<?, ?>) told.get("topics")).containsKey(topic));
    }

    static Step delete(String topic) {
        return new Step(() -> admin.deleteTopics(List.of(topic)).all().get(),
            told -> !((Map<?, ?>) told.get("topics")).containsKey(topic));
    }

    static Step acl(String topic, boolean isAdded) {
        var pattern = new ResourcePattern(ResourceType.TOPIC, topic, PatternType.LITERAL);
        var binding = new AclBinding(pattern, new AccessControlEntry("User:ann", "*", AclOperation.READ,
            AclPermissionType.ALLOW));
        return new Step(() -> {
            if (isAdded) { admin.createAcls(List.of(binding)).all().get(); }
            else { admin.deleteAcls(List.of(binding.toFilter())).all().get(); }
        }, told -> ((List<?>) told.get("acls")).contains(topic + "|User:ann|READ") == isAdded);
    }

    public static void main(String[] args) throws Exception {
        admin = Admin.create(Map.of("bootstrap.servers", args[0]));
        List<Step> steps = new ArrayList<>();
        for (int round = 0; round < 4; round++) {
            String topic = "t-" + round;
            steps.addAll(List.of(create(topic, round + 1), config(topic, "retention.ms", "" + (1000 + round)),
                acl(topic, true), quota("u-" + round, 1000.0 + round),
                new Step(() -> admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(7))).all().get(),
                    told -> ((List<?>) ((Map<?, ?>) told.get("topics")).get(topic)).get(1).equals(7))));
            if (round > 0) {
                String before = "t-" + (round - 1);
                steps.addAll(List.of(config(before, "retention.ms", null), acl(before, false),
                    quota("u-" + (round - 1), null), delete(before), create(before, 2),
                    config(before, "max.message.bytes", "7000")));
            }
        }
        List<Object> states = new ArrayList<>();
        for (Step step : steps) {
            step.change().make();
            Map<String, Object> told = tell();
            while (!step.isThere().test(told)) { told = tell(); }
            // what comes next is of a later offset, and of a later time
            told.put("offset", admin.describeMetadataQuorum().quorumInfo().get().highWatermark());
            long now = System.currentTimeMillis() + 1;
            told.put("time", now);
            while (System.currentTimeMillis() <= now) { Thread.onSpinWait(); }
            states.add(told);
        }
        System.out.println(new ObjectMapper().writeValueAsString(states));
        admin.close();
    }
}
