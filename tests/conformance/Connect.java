import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Date;
import java.util.List;
import java.util.Map;
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.json.JsonConverter;

/** Prints the values that Kafka Connect's JsonConverter reads: a line for each line of base64. */
public class Connect {
    public static void main(String[] arguments) throws Exception {
        JsonConverter converter = new JsonConverter();
        converter.configure(Map.of("schemas.enable", "true"), false);
        PrintStream out = new PrintStream(System.out, false, "UTF-8");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            try {
                SchemaAndValue read = converter.toConnectData("t", Base64.getDecoder().decode(line));
                out.println(shown(read.value()));
            } catch (RuntimeException error) {
                out.println("error");
            }
        }
        out.flush();
    }

    private static String shown(Object value) {
        List<String> parts = new ArrayList<>();
        if (value instanceof Struct) {
            Struct struct = (Struct) value;
            for (Field field : struct.schema().fields())
                parts.add(field.name() + "=" + shown(struct.get(field)));
            return "{" + String.join(",", parts) + "}";
        }
        if (value instanceof List) {
            for (Object item : (List<?>) value) parts.add(shown(item));
            return "[" + String.join(",", parts) + "]";
        }
        if (value instanceof Map) {
            for (Map.Entry<?, ?> item : ((Map<?, ?>) value).entrySet())
                parts.add(shown(item.getKey()) + ":" + shown(item.getValue()));
            parts.sort(null);
            return "<" + String.join(",", parts) + ">";
        }
        if (value instanceof BigDecimal) return ((BigDecimal) value).stripTrailingZeros().toPlainString();
        if (value instanceof Date) return Long.toString(((Date) value).getTime());
        if (value instanceof byte[]) return Base64.getEncoder().encodeToString((byte[]) value);
        if (value instanceof ByteBuffer) return Base64.getEncoder().encodeToString(((ByteBuffer) value).array());
        if (value instanceof Float || value instanceof Double) return Double.toString(((Number) value).doubleValue());
        return String.valueOf(value);
    }
}
