import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Receives what Send sent, from the first offset on, and prints a line for each message. Settings: namesrv, topic, group,
 * sql; ordered: it takes the queues in order, each under a lock of its broker.
 */
public final class Receive {
    public static void main(String[] args) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(System.getProperty("group", "receiver"));
        consumer.setNamesrvAddr(Line.need("namesrv"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        String sql = System.getProperty("sql", "");
        if (sql.isEmpty()) {
            consumer.subscribe(Line.need("topic"), "*");
        } else {
            consumer.subscribe(Line.need("topic"), MessageSelector.bySql(sql));
        }
        if (Boolean.getBoolean("ordered")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                messages.forEach(Receive::print);
                return ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                messages.forEach(Receive::print);
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        consumer.start();
        Line.of("started").with("at_us", Line.micros()).print();
        Thread.currentThread().join();
    }

    private static void print(MessageExt message) {
        String body = new String(message.getBody(), StandardCharsets.US_ASCII);
        Line.of("received").with("sequence", Long.parseLong(body.substring(0, body.indexOf(' '))))
            .with("at_us", Line.micros()).with("broker", message.getBrokerName())
            .with("queue", message.getQueueId()).with("offset", message.getQueueOffset())
            .with("again", message.getReconsumeTimes()).print();
    }
}
