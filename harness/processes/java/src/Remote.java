import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.stream.Stream;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.ProducerBuilder;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/**
 * A producer that speaks gRPC, to a proxy. It does what each line of its input says, and prints a line for what that came to.
 *
 * Commands: send N, ordered N GROUP, delay N MS, recall N, commit N, rollback N, leave N. Events: started; done (sequence, ok, id or error);
 * checked (sequence): a half that was left, which it commits if N is even. Settings: endpoints; plain, delayed, pairs, ordered:
 * topics, or nothing.
 * It stands alone: the gRPC client has jars of its own.
 */
public final class Remote {
    private final ClientServiceProvider provider = ClientServiceProvider.loadService();
    private final Map<String, String> handles = new HashMap<>();
    private final String plain = need("plain");
    private final String delayed = need("delayed");
    private final String pairs = need("pairs");
    private final String ordered = need("ordered");
    private final Producer producer;

    private Remote() throws Exception {
        ClientConfiguration configuration = ClientConfiguration.newBuilder().setEndpoints(need("endpoints"))
            .enableSsl(false).setRequestTimeout(Duration.ofSeconds(5)).build();
        ProducerBuilder builder = provider.newProducerBuilder().setClientConfiguration(configuration);
        builder.setTopics(Stream.of(plain, delayed, pairs, ordered).filter(topic -> !topic.isEmpty()).toArray(String[]::new));
        if (pairs.isEmpty()) {
            producer = builder.build();
            return;
        }
        producer = builder.setTransactionChecker(half -> {
            String body = StandardCharsets.US_ASCII.decode(half.getBody()).toString();
            long sequence = Long.parseLong(body.substring(0, body.indexOf(' ')));
            print("{\"event\":\"checked\",\"sequence\":" + sequence + "}");
            return sequence % 2 == 0 ? TransactionResolution.COMMIT : TransactionResolution.ROLLBACK;
        }).build();
    }

    public static void main(String[] args) throws Exception {
        Remote remote = new Remote();
        print("{\"event\":\"started\"}");
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            String head = "{\"event\":\"done\",\"command\":\"" + words[0] + "\",\"sequence\":" + words[1];
            try {
                print(head + ",\"ok\":true,\"id\":\"" + remote.obey(words) + "\"}");
            } catch (Exception failure) {
                String why = failure.toString().replaceAll("[\"\\\\\\p{Cntrl}]", " ");
                print(head + ",\"ok\":false,\"error\":\"" + why + "\"}");
            }
        }
        Runtime.getRuntime().halt(0);
    }

    private Object obey(String[] words) throws Exception {
        MessageBuilder message = provider.newMessageBuilder().setKeys(words[1])
            .setBody((words[1] + " .").getBytes(StandardCharsets.US_ASCII));
        switch (words[0]) {
            case "send":
                return producer.send(message.setTopic(plain).build()).getMessageId();
            case "ordered":
                return producer.send(message.setTopic(ordered).setMessageGroup(words[2]).build()).getMessageId();
            case "delay":
                SendReceipt receipt = producer.send(message.setTopic(delayed)
                    .setDeliveryTimestamp(System.currentTimeMillis() + Long.parseLong(words[2])).build());
                handles.put(words[1], receipt.getRecallHandle());
                return receipt.getMessageId();
            case "recall":
                return producer.recallMessage(delayed, handles.get(words[1])).getMessageId();
            default:
                Transaction transaction = producer.beginTransaction();
                SendReceipt half = producer.send(message.setTopic(pairs).build(), transaction);
                if (words[0].equals("commit")) {
                    transaction.commit();
                } else if (words[0].equals("rollback")) {
                    transaction.rollback();
                }
                return half.getMessageId();
        }
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
