import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.ScramCredentialInfo;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.clients.admin.UserScramCredentialUpsertion;
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
import org.apache.kafka.common.utils.Exit;

/** Makes topics, settings, ACLs and quotas, by the admin client or by Kafka's own tools, and shows those of a cluster. */
public class Applied {
    static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        Exit.setExitProcedure((status, message) -> {
            if (status != 0) {
                throw new IllegalStateException("exit " + status + ": " + message);
            }
        });
        var lines = new BufferedReader(new InputStreamReader(System.in, "UTF-8")).lines().toList();
        if (args[1].equals("run")) {
            for (String line : lines) {
                run(JSON.readTree(line));
            }
            return;
        }
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", args[0]))) {
            if (args[1].equals("make")) {
                for (String line : lines) {
                    make(admin, JSON.readTree(line));
                }
            } else {
                System.out.println(JSON.writeValueAsString(show(admin)));
            }
        }
    }

    static void run(JsonNode call) throws Exception {
        List<String> words = new ArrayList<>();
        for (JsonNode word : call.get("args")) {
            words.add(word.asText());
        }
        Path input = Files.createTempFile("input", ".properties");
        Files.writeString(input, call.get("input").asText());
        words.replaceAll(word -> word.equals("/dev/stdin") ? input.toString() : word);
        String[] args = words.toArray(new String[0]);
        try {
            switch (call.get("tool").asText()) {
                case "kafka-topics.sh" -> org.apache.kafka.tools.TopicCommand.main(args);
                case "kafka-configs.sh" -> kafka.admin.ConfigCommand.main(args);
                case "kafka-acls.sh" -> org.apache.kafka.tools.AclCommand.main(args);
                default -> throw new IllegalArgumentException(call.toString());
            }
        } catch (Exception error) {
            throw new IllegalStateException(call.toString(), error);
        }
    }

    static void make(Admin admin, JsonNode one) throws Exception {
        switch (one.get("make").asText()) {
            case "topic" -> admin.createTopics(List.of(new NewTopic(one.get("name").asText(),
                one.get("partitions").asInt(), (short) 1).configs(texts(one.get("configs"))))).all().get();
            case "configs" -> {
                var type = ConfigResource.Type.valueOf(one.get("type").asText());
                List<AlterConfigOp> ops = new ArrayList<>();
                texts(one.get("configs")).forEach((name, value) ->
                    ops.add(new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET)));
                admin.incrementalAlterConfigs(Map.of(new ConfigResource(type, one.get("name").asText()), ops)).all().get();
            }
            case "acl" -> admin.createAcls(List.of(new AclBinding(
                new ResourcePattern(ResourceType.valueOf(one.get("resource").asText()), one.get("name").asText(),
                    PatternType.valueOf(one.get("pattern").asText())),
                new AccessControlEntry(one.get("principal").asText(), one.get("host").asText(),
                    AclOperation.valueOf(one.get("operation").asText()),
                    AclPermissionType.valueOf(one.get("permission").asText()))))).all().get();
            case "quota" -> {
                Map<String, String> entity = new HashMap<>();
                one.get("entity").fields().forEachRemaining(pair ->
                    entity.put(pair.getKey(), pair.getValue().isNull() ? null : pair.getValue().asText()));
                admin.alterClientQuotas(List.of(new ClientQuotaAlteration(new ClientQuotaEntity(entity), List.of(
                    new ClientQuotaAlteration.Op(one.get("key").asText(), one.get("value").asDouble()))))).all().get();
            }
            case "scram" -> admin.alterUserScramCredentials(List.of(new UserScramCredentialUpsertion(
                one.get("user").asText(),
                new ScramCredentialInfo(ScramMechanism.valueOf(one.get("mechanism").asText()), 4096),
                "secret"))).all().get();
            default -> throw new IllegalArgumentException(one.toString());
        }
    }

    static Map<String, String> texts(JsonNode node) {
        Map<String, String> texts = new HashMap<>();
        node.fields().forEachRemaining(pair -> texts.put(pair.getKey(), pair.getValue().asText()));
        return texts;
    }

    static ObjectNode show(Admin admin) throws Exception {
        ObjectNode shown = JSON.createObjectNode();
        List<ConfigResource> resources = new ArrayList<>();
        ObjectNode topics = shown.putObject("topics");
        var names = admin.listTopics(new ListTopicsOptions().listInternal(true)).names().get();
        admin.describeTopics(names).allTopicNames().get().forEach((name, topic) -> {
            topics.put(name, topic.partitions().size());
            resources.add(new ConfigResource(ConfigResource.Type.TOPIC, name));
        });
        resources.add(new ConfigResource(ConfigResource.Type.BROKER, ""));
        resources.add(new ConfigResource(ConfigResource.Type.BROKER, "1"));
        for (var type : List.of(ConfigResource.Type.GROUP, ConfigResource.Type.CLIENT_METRICS)) {
            resources.addAll(admin.listConfigResources(java.util.Set.of(type),
                new org.apache.kafka.clients.admin.ListConfigResourcesOptions()).all().get());
        }
        ObjectNode configs = shown.putObject("configs");
        admin.describeConfigs(resources).all().get().forEach((resource, config) -> {
            for (ConfigEntry entry : config.entries()) {
                boolean isOwn = switch (entry.source()) {
                    case DYNAMIC_TOPIC_CONFIG, DYNAMIC_BROKER_CONFIG, DYNAMIC_GROUP_CONFIG,
                        DYNAMIC_CLIENT_METRICS_CONFIG -> true;
                    case DYNAMIC_DEFAULT_BROKER_CONFIG -> resource.type() == ConfigResource.Type.BROKER
                        && resource.name().isEmpty();
                    default -> false;
                };
                if (isOwn) {
                    configs.put(resource.type() + " " + resource.name() + " " + entry.name(), entry.value());
                }
            }
        });
        List<String> acls = new ArrayList<>();
        admin.describeAcls(AclBindingFilter.ANY).values().get().forEach(acl -> acls.add(acl.toString()));
        acls.stream().sorted().forEach(shown.putArray("acls")::add);
        List<String> quotas = new ArrayList<>();
        admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get().forEach((entity, limits) ->
            quotas.add(new java.util.TreeMap<>(entity.entries()) + " " + new java.util.TreeMap<>(limits)));
        quotas.stream().sorted().forEach(shown.putArray("quotas")::add);
        return shown;
    }
}
