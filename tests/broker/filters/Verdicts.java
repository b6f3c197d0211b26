import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.InputStreamReader;
import java.io.OutputStreamWriter;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.EvaluationContext;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.filter.expression.MQFilterException;

/**
 * Says of expressions what RocketMQ makes of them. A line of input: fields in base64, separated by blanks: the
 * expression, then names and values of properties, or one field, which is properties as they stand in the log. A line
 * of output: one letter; T true, F false, N null, E the evaluation fails, P it does not compile.
 */
public final class Verdicts {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII), 1 << 16);
        BufferedWriter out = new BufferedWriter(new OutputStreamWriter(System.out, StandardCharsets.US_ASCII));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] fields = line.split(" ", -1);
            Map<String, Object> properties = new HashMap<>();
            if (fields.length == 2) {
                properties.putAll(MessageDecoder.string2messageProperties(text(fields[1])));
            }
            for (int at = 1; at + 1 < fields.length; at += 2) {
                properties.put(text(fields[at]), text(fields[at + 1]));
            }
            out.write(verdict(text(fields[0]), properties));
            out.newLine();
        }
        out.flush();
    }

    private static String text(String field) {
        return new String(Base64.getDecoder().decode(field), StandardCharsets.UTF_8);
    }

    private static char verdict(String text, Map<String, Object> properties) {
        Expression expression;
        try {
            expression = FilterFactory.INSTANCE.get("SQL92").compile(text);
        } catch (MQFilterException wrong) {
            return 'P';
        }
        try {
            Object value = expression.evaluate(new EvaluationContext() {
                @Override
                public Object get(String name) {
                    return properties.get(name);
                }

                @Override
                public Map<String, Object> keyValues() {
                    return properties;
                }
            });
            return value == null ? 'N' : Boolean.TRUE.equals(value) ? 'T' : 'F';
        } catch (Throwable failure) {
            return 'E';
        }
    }
}
