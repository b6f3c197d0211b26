import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/**
 * Sends numbered messages one after the other and prints a line for each: when it was sent, when the answer came, and
 * what it was; its id tells which broker stored it, and where. Settings: namesrv, topic, group, count (0: without
 * end), interval_ms, timeout_ms, retries, body_bytes, trace (of each message what became of it is sent to the topic of
 * traces).
 */
public final class Send {
    public static void main(String[] args) throws Exception {
        String topic = Line.need("topic");
        long count = Long.getLong("count", 0);
        long interval = Long.getLong("interval_ms", 20);
        int bodyBytes = Integer.getInteger("body_bytes", 64);
        DefaultMQProducer producer =
            new DefaultMQProducer(System.getProperty("group", "sender"), Boolean.getBoolean("trace"), null);
        producer.setNamesrvAddr(Line.need("namesrv"));
        producer.setSendMsgTimeout(Integer.getInteger("timeout_ms", 3000));
        producer.setRetryTimesWhenSendFailed(Integer.getInteger("retries", 2));
        producer.start();
        Line.of("started").with("at_us", Line.micros()).print();
        for (long sequence = 0; count == 0 || sequence < count; sequence++) {
            long begun = Line.micros();
            Line line = Line.of("sent").with("sequence", sequence).with("begun_us", begun);
            try {
                SendResult result = producer.send(new Message(topic, body(sequence, bodyBytes)));
                line.with("ended_us", Line.micros()).with("ok", "SEND_OK".equals(result.getSendStatus().name()))
                    .with("status", result.getSendStatus().name())
                    .with("broker", result.getMessageQueue().getBrokerName())
                    .with("queue", result.getMessageQueue().getQueueId()).with("offset", result.getQueueOffset())
                    .with("id", result.getOffsetMsgId());
            } catch (Exception failure) {
                line.with("ended_us", Line.micros()).failed(failure);
            }
            line.print();
            long rest = interval - (Line.micros() - begun) / 1000;
            if (rest > 0) {
                Thread.sleep(rest);
            }
        }
        producer.shutdown();
        Line.of("ended").with("at_us", Line.micros()).print();
        System.exit(0);
    }

    /** The number in decimal, a blank, and dots up to the size wanted. */
    private static byte[] body(long sequence, int size) {
        byte[] number = (sequence + " ").getBytes(StandardCharsets.US_ASCII);
        byte[] body = Arrays.copyOf(number, Math.max(size, number.length));
        Arrays.fill(body, number.length, body.length, (byte) '.');
        return body;
    }
}
