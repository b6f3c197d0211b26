import com.google.gson.ExclusionStrategy;
import com.google.gson.FieldAttributes;
import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Random;

/** One line of JSON on standard output, flushed at once: how all programs here report. */
final class Line {
    /** Not RocketMQ's own: that leaves numeric keys bare, which is no JSON. */
    private static final Gson JSON = new GsonBuilder().disableHtmlEscaping().setExclusionStrategies(new NoChance()).create();

    private final Map<String, Object> fields = new LinkedHashMap<>();

    static Line of(String event) {
        return new Line().with("event", event);
    }

    Line with(String key, Object value) {
        fields.put(key, value);
        return this;
    }

    Line failed(Throwable failure) {
        with("ok", false).with("error", words(failure));
        return failure.getCause() == null ? this : with("cause", words(failure.getCause()));
    }

    private static String words(Throwable failure) {
        return failure.getClass().getSimpleName() + ": " + failure.getMessage();
    }

    synchronized void print() {
        synchronized (System.out) {
            System.out.println(JSON.toJson(fields));
            System.out.flush();
        }
    }

    /** Microseconds of the wall clock, which all processes of one machine share. */
    static long micros() {
        return ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now());
    }

    /** The value of a required setting given as -Dkey=value. */
    static String need(String key) {
        String value = System.getProperty(key);
        if (value == null) {
            throw new IllegalArgumentException("-D" + key + "=... is needed");
        }
        return value;
    }

    /** Some of RocketMQ's bodies hold a random generator, whose fields Java keeps closed. */
    private static final class NoChance implements ExclusionStrategy {
        @Override
        public boolean shouldSkipField(FieldAttributes field) {
            return field.getDeclaredClass() == Random.class;
        }

        @Override
        public boolean shouldSkipClass(Class<?> type) {
            return false;
        }
    }
}
