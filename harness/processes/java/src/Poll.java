import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Polls what Send sends, of a new group from the last offset on, which is the default, and prints a line for each
 * message. Settings: namesrv, topic, group.
 */
public final class Poll {
    public static void main(String[] args) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(System.getProperty("group", "poller"));
        consumer.setNamesrvAddr(Line.need("namesrv"));
        consumer.subscribe(Line.need("topic"), "*");
        consumer.start();
        Line.of("started").with("at_us", Line.micros()).print();
        while (true) {
            for (MessageExt message : consumer.poll()) {
                String body = new String(message.getBody(), StandardCharsets.US_ASCII);
                Line.of("received").with("sequence", Long.parseLong(body.substring(0, body.indexOf(' '))))
                    .with("at_us", Line.micros()).with("broker", message.getBrokerName())
                    .with("queue", message.getQueueId()).with("offset", message.getQueueOffset()).print();
            }
        }
    }
}
