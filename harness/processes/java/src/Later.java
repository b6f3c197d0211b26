import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Sends messages that are to come later, receives them, and takes one back. A line for each that was sent ("sent": name,
 * at_ms, due_ms, ok, code) or came ("received": name, at_ms, rolls, again), for a recall ("recalled": name, ok, code),
 * Commands on standard input: "NAME DELAY_MS" and "NAME @TIME_MS" send, "NAME #LEVEL" with that delay level, 1 to 4; the
 * first delivery of a NAME that ends with "-retry" is refused; "recall NAME" takes back, "wrong NAME" tries that for
 * another topic. Settings: namesrv, topic.
 */
public final class Later {
    private static final Map<String, String> HANDLES = new HashMap<>();
    private static final long[] LEVELS_MS = {1_000, 5_000, 10_000, 30_000};
    private static final Map<String, Integer> REFUSED = new ConcurrentHashMap<>();

    public static void main(String[] args) throws Exception {
        String topic = Line.need("topic");
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("later-readers");
        consumer.setNamesrvAddr(Line.need("namesrv"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            boolean refuse = false;
            for (MessageExt message : messages) {
                String name = new String(message.getBody(), StandardCharsets.US_ASCII);
                Line.of("received").with("name", name).with("at_ms", System.currentTimeMillis())
                    .with("rolls", message.getProperty("TIMER_ROLL_TIMES")).with("again", message.getReconsumeTimes())
                    .print();
                refuse |= name.endsWith("-retry") && REFUSED.merge(name, 1, Integer::sum) == 1;
            }
            return refuse ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.setConsumeMessageBatchMaxSize(1);
        consumer.setPollNameServerInterval(1000);  // its topics are made by the first message, and the first refusal
        consumer.start();
        DefaultMQProducer producer = new DefaultMQProducer("later-senders");
        producer.setNamesrvAddr(Line.need("namesrv"));
        producer.start();
        Line.of("started").print();
        byte[] buffer = new byte[1 << 16];
        StringBuilder read = new StringBuilder();
        for (int count = System.in.read(buffer); count >= 0; count = System.in.read(buffer)) {
            read.append(new String(buffer, 0, count, StandardCharsets.US_ASCII));
            for (int end = read.indexOf("\n"); end >= 0; end = read.indexOf("\n")) {
                obey(producer, topic, read.substring(0, end).trim().split(" "));
                read.delete(0, end + 1);
            }
        }
        System.exit(0);
    }

    private static void obey(DefaultMQProducer producer, String topic, String[] words) {
        boolean takesBack = words[0].equals("recall") || words[0].equals("wrong");
        Line line = Line.of(takesBack ? "recalled" : "sent").with("name", words[takesBack ? 1 : 0]);
        try {
            if (takesBack) {
                String of = words[0].equals("wrong") ? topic + "Other" : topic;
                line.with("id", producer.recallMessage(of, HANDLES.get(words[1]))).with("ok", true);
            } else {
                Message message = new Message(topic, words[0].getBytes(StandardCharsets.US_ASCII));
                long now = System.currentTimeMillis();
                long due;
                if (words[1].startsWith("#")) {
                    int level = Integer.parseInt(words[1].substring(1));
                    message.setDelayTimeLevel(level);
                    due = now + LEVELS_MS[level - 1];
                } else {
                    due = words[1].startsWith("@") ? Long.parseLong(words[1].substring(1)) : now + Long.parseLong(words[1]);
                    message.setDeliverTimeMs(due);
                }
                line.with("at_ms", now).with("due_ms", due);
                SendResult result = producer.send(message);
                HANDLES.put(words[0], result.getRecallHandle());
                line.with("ok", "SEND_OK".equals(result.getSendStatus().name()))
                    .with("handle", result.getRecallHandle());
            }
        } catch (MQBrokerException failure) {
            line.failed(failure).with("code", failure.getResponseCode());
        } catch (Exception failure) {
            line.failed(failure);
        }
        line.print();
    }
}
