import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import org.apache.kafka.tools.DumpLogSegments;

/** Runs DumpLogSegments once for each line of stdin: a path without its suffix, and the arguments, between tabs. */
public class Dumps {
    public static void main(String[] arguments) throws Exception {
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (var line = lines.readLine(); line != null; line = lines.readLine()) {
            var words = line.split("\t");
            var out = new ByteArrayOutputStream();
            var err = new ByteArrayOutputStream();
            System.setOut(new PrintStream(out, false, StandardCharsets.UTF_8));
            System.setErr(new PrintStream(err, false, StandardCharsets.UTF_8));
            String thrown = "";
            try {
                DumpLogSegments.main(Arrays.copyOfRange(words, 1, words.length));
            } catch (Throwable problem) {
                thrown = problem.toString();
            }
            System.out.flush();
            System.err.flush();
            Files.write(Path.of(words[0] + ".out"), out.toByteArray());
            Files.write(Path.of(words[0] + ".err"), err.toByteArray());
            Files.writeString(Path.of(words[0] + ".thrown"), thrown);
        }
    }
}
