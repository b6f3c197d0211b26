import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageView;

/**
 * A consumer that speaks gRPC, to a proxy: a push consumer, or a simple one, as its setting kind says. It prints a line for
 * each message, and for what became of each of its acknowledgements.
 *
 * Settings: endpoints, topic, group, kind; refuse: numbers that divide by it are not consumed at their first refusals
 * attempts (by a simple consumer: not acknowledged), 0 for none; invisible_ms, of a simple one. Events: started; received
 * (sequence, attempt, group, at_us); acked (sequence, ok). It stands alone: the gRPC client has jars of its own.
 */
public final class Distant {
    private static final int REFUSE = Integer.getInteger("refuse", 0);
    private static final int REFUSALS = Integer.getInteger("refusals", 1);

    public static void main(String[] args) throws Exception {
        ClientServiceProvider provider = ClientServiceProvider.loadService();
        ClientConfiguration configuration = ClientConfiguration.newBuilder().setEndpoints(need("endpoints"))
            .enableSsl(false).setRequestTimeout(Duration.ofSeconds(5)).build();
        Map<String, FilterExpression> wanted = Collections.singletonMap(need("topic"), FilterExpression.SUB_ALL);
        if (need("kind").equals("push")) {
            provider.newPushConsumerBuilder().setClientConfiguration(configuration).setConsumerGroup(need("group"))
                .setSubscriptionExpressions(wanted)
                .setMessageListener(message -> wanted(message) ? ConsumeResult.SUCCESS : ConsumeResult.FAILURE).build();
            print("{\"event\":\"started\"}");
            Thread.currentThread().join();
        }
        SimpleConsumer consumer = provider.newSimpleConsumerBuilder().setClientConfiguration(configuration)
            .setConsumerGroup(need("group")).setAwaitDuration(Duration.ofSeconds(5)).setSubscriptionExpressions(wanted)
            .build();
        print("{\"event\":\"started\"}");
        while (true) {
            try {
                List<MessageView> found = consumer.receive(16, Duration.ofMillis(Long.getLong("invisible_ms", 10_000)));
                for (MessageView message : found) {
                    if (wanted(message)) {
                        acknowledge(consumer, message);
                    }
                }
            } catch (Exception failure) {
                print("{\"event\":\"failed\",\"error\":\"" + words(failure) + "\"}");
                Thread.sleep(200);
            }
        }
    }

    private static boolean wanted(MessageView message) {
        long sequence = sequence(message);
        print("{\"event\":\"received\",\"sequence\":" + sequence + ",\"attempt\":" + message.getDeliveryAttempt()
            + ",\"group\":\"" + message.getMessageGroup().orElse("") + "\",\"at_us\":"
            + System.currentTimeMillis() * 1000 + "}");
        return REFUSE == 0 || sequence % REFUSE != 0 || message.getDeliveryAttempt() > REFUSALS;
    }

    private static void acknowledge(SimpleConsumer consumer, MessageView message) {
        String head = "{\"event\":\"acked\",\"sequence\":" + sequence(message);
        try {
            consumer.ack(message);
            print(head + ",\"ok\":true}");
        } catch (Exception failure) {
            print(head + ",\"ok\":false,\"error\":\"" + words(failure) + "\"}");
        }
    }

    private static long sequence(MessageView message) {
        String body = StandardCharsets.US_ASCII.decode(message.getBody()).toString();
        return Long.parseLong(body.substring(0, body.indexOf(' ')));
    }

    private static String words(Exception failure) {
        return failure.toString().replaceAll("[\"\\\\\\p{Cntrl}]", " ");
    }

    private static String need(String key) {
        String value = System.getProperty(key);
        if (value == null) {
            throw new IllegalArgumentException("-D" + key + "=... is needed");
        }
        return value;
    }

    private static synchronized void print(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
