import java.nio.charset.StandardCharsets;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A push consumer that leaves the sharing of queues to the broker, and pops where that says so. It prints a line for each
 * message. Settings: namesrv, topic, group, tags; invisible_ms; refuse: numbers that divide by it are not consumed the
 * first time, 0 for none; hold_ms: what the listener takes for each.
 */
public final class Pop {
    public static void main(String[] args) throws Exception {
        int refuse = Integer.getInteger("refuse", 0);
        long holdMs = Long.getLong("hold_ms", 0);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(Line.need("group"));
        consumer.setNamesrvAddr(Line.need("namesrv"));
        consumer.setInstanceName(Line.need("name"));
        consumer.setClientRebalance(false);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPopInvisibleTime(Long.getLong("invisible_ms", 60_000));
        consumer.subscribe(Line.need("topic"), System.getProperty("tags", "*"));
        ConcurrentHashMap<Long, AtomicInteger> times = new ConcurrentHashMap<>();
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            boolean refused = false;
            for (MessageExt message : messages) {
                String body = new String(message.getBody(), StandardCharsets.US_ASCII);
                long sequence = Long.parseLong(body.substring(0, body.indexOf(' ')));
                Line.of("received").with("sequence", sequence).with("at_us", Line.micros())
                    .with("topic", message.getTopic()).with("broker", message.getBrokerName())
                    .with("queue", message.getQueueId()).with("offset", message.getQueueOffset())
                    .with("again", message.getReconsumeTimes()).with("tag", message.getTags())
                    .with("handle", message.getProperty(MessageConst.PROPERTY_POP_CK))
                    .with("first_pop_ms", message.getProperty(MessageConst.PROPERTY_FIRST_POP_TIME)).print();
                refused |= refuse > 0 && sequence % refuse == 0
                    && times.computeIfAbsent(sequence, key -> new AtomicInteger()).getAndIncrement() == 0;
            }
            if (holdMs > 0) {
                try {
                    Thread.sleep(holdMs);
                } catch (InterruptedException ended) {
                    return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                }
            }
            return refused ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        Line.of("started").with("at_us", Line.micros()).print();
        Thread.currentThread().join();
    }
}
