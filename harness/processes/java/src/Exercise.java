import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.function.Predicate;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.protocol.heartbeat.MessageModel;

/**
 * A producer and consumers of every kind in one process, with RocketMQ's defaults; it judges itself what it received.
 * In each of its rounds it sends in order by key, with tags, one-way and in batches, and now and then a message that
 * its consumer refuses once, or always. What is not acknowledged is sent again. A line "sent" for each send, a line
 * "verdict" for each check at the end. Settings: namesrv, rounds, interval_ms, patience_s. The topics Plain, Ordered
 * and Refused are to be there.
 */
public final class Exercise {
    private static final int KEYS = 5;
    private static final int BATCH = 8;
    private static final int ROOM = 100;
    private static final Check TAGS = new Check("tags");
    private static final Check ONE_WAY = new Check("one-way");
    private static final Check[] BROADCAST = {new Check("broadcast 1"), new Check("broadcast 2")};
    private static final Check ORDER = new Check("order");
    private static final Check REFUSED = new Check("refused once");
    private static final Check DEAD = new Check("dead letters");
    private static final List<Check> ALL = List.of(TAGS, ONE_WAY, BROADCAST[0], BROADCAST[1], ORDER, REFUSED, DEAD);

    private final DefaultMQProducer producer = new DefaultMQProducer("exercise");
    private boolean disturbed;

    public static void main(String[] args) throws Exception {
        new Exercise().run(Long.getLong("rounds", 100), Long.getLong("interval_ms", 50), Long.getLong("patience_s", 90));
        System.exit(0);
    }

    private void run(long rounds, long interval, long patience) throws Exception {
        consume();
        producer.setNamesrvAddr(Line.need("namesrv"));
        producer.start();
        Line.of("started").with("at_us", Line.micros()).print();
        for (long round = 0; round < rounds; round++) {
            round(round);
            Thread.sleep(interval);
        }
        Line.of("all_sent").with("at_us", Line.micros()).print();
        long end = Line.micros() + patience * 1_000_000;
        while (Line.micros() < end && !ALL.stream().allMatch(Check::complete)) {
            Thread.sleep(100);
        }
        ALL.forEach(Check::print);
        Line.of("ended").with("at_us", Line.micros()).print();
    }

    // --- sending ---

    private void round(long round) throws Exception {
        long first = round * ROOM;
        producer.sendOneway(message("Plain", "TagC", first));
        send("tagged", first + 1, () -> producer.send(message("Plain", "TagA", first + 1)));
        if (!disturbed) {
            ONE_WAY.want(first);  // it went by the connection of the one behind it, which is stored
        }
        send("tagged", first + 2, () -> producer.send(message("Plain", "TagB", first + 2)));
        List<Message> batch = new ArrayList<>();
        for (long number = first + 3; number < first + 3 + BATCH; number++) {
            batch.add(message("Plain", "TagA", number));
        }
        send("batch", first + 3, () -> producer.send(batch));
        for (long number = first + 1; number < first + 3 + BATCH; number++) {
            BROADCAST[0].want(number);
            BROADCAST[1].want(number);
            if (number != first + 2) {
                TAGS.want(number);
            }
        }
        send("ordered", round, () -> producer.send(
            message("Ordered", "", round), (queues, message, key) -> queues.get((int) key % queues.size()),
            (int) (round % KEYS)));
        ORDER.want(round);
        if (round % 10 == 0) {
            send("refused", round, () -> producer.send(message("Refused", "Once", round)));
            REFUSED.want(round);
            send("refused", round + 1, () -> producer.send(message("Refused", "Always", round + 1)));
            DEAD.want(round + 1);
        }
    }

    /** Until it is acknowledged, however often that takes. */
    private void send(String kind, long number, Callable<SendResult> how) throws Exception {
        for (int tries = 1; ; tries++) {
            Line line = Line.of("sent").with("kind", kind).with("number", number).with("tries", tries)
                .with("begun_us", Line.micros());
            try {
                String status = how.call().getSendStatus().name();
                boolean good = "SEND_OK".equals(status);
                line.with("ended_us", Line.micros()).with("ok", good).with("status", status).print();
                if (good) {
                    return;
                }
            } catch (Exception failure) {
                line.with("ended_us", Line.micros()).failed(failure).print();
            }
            disturbed = true;
            Thread.sleep(50);
        }
    }

    private static Message message(String topic, String tag, long number) {
        return new Message(topic, tag, Long.toString(number).getBytes(StandardCharsets.US_ASCII));
    }

    private static long number(MessageExt message) {
        return Long.parseLong(new String(message.getBody(), StandardCharsets.US_ASCII));
    }

    // --- consuming ---

    private static void consume() throws Exception {
        started(consumer("tags", "Plain", "TagA"), message -> {
            TAGS.see(number(message));
            if (!"TagA".equals(message.getTags())) {
                TAGS.wrong(number(message) + " has the tag " + message.getTags());
            }
            return true;
        });
        started(consumer("one-way", "Plain", "TagC || TagD"), message -> {
            ONE_WAY.see(number(message));
            return true;
        });
        for (int one = 0; one < BROADCAST.length; one++) {
            Check check = BROADCAST[one];
            DefaultMQPushConsumer broadcast = consumer("broadcast", "Plain", "*");
            broadcast.setMessageModel(MessageModel.BROADCASTING);
            broadcast.setInstanceName("broadcast-" + one);
            started(broadcast, message -> {
                check.see(number(message));
                return true;
            });
        }
        started(consumer("ordered", "Ordered", "*"), inOrder());
        DefaultMQPushConsumer refusing = consumer("refused", "Refused", "*");
        refusing.setMaxReconsumeTimes(1);
        started(refusing, message -> {
            boolean taken = "Once".equals(message.getTags()) && message.getReconsumeTimes() > 0;
            if (taken) {
                REFUSED.see(number(message));
            }
            return taken;
        });
        DefaultMQPushConsumer dead = consumer("undertaker", "%DLQ%refused", "*");
        dead.setPollNameServerInterval(1000);  // the topic is made when the first message dies
        started(dead, message -> {
            DEAD.see(number(message));
            if (!"Always".equals(message.getTags())) {
                DEAD.wrong(number(message) + " was to be refused only once");
            }
            return true;
        });
    }

    /** What comes for the first time of a key comes behind its predecessor, though some may come again. */
    private static MessageListenerOrderly inOrder() {
        Map<Long, Long> last = new HashMap<>();
        return (messages, context) -> {
            synchronized (last) {
                for (MessageExt message : messages) {
                    long number = number(message);
                    long key = number % KEYS;
                    long before = last.getOrDefault(key, key - KEYS);
                    if (number > before + KEYS) {
                        ORDER.wrong(number + " came behind " + before);
                    }
                    last.put(key, Math.max(before, number));
                    ORDER.see(number);
                }
            }
            return ConsumeOrderlyStatus.SUCCESS;
        };
    }

    private static DefaultMQPushConsumer consumer(String group, String topic, String tags) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(Line.need("namesrv"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, tags);
        return consumer;
    }

    private static void started(DefaultMQPushConsumer consumer, Predicate<MessageExt> taken) throws Exception {
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) ->
            messages.stream().allMatch(taken)
                ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS : ConsumeConcurrentlyStatus.RECONSUME_LATER);
        consumer.start();
    }

    private static void started(DefaultMQPushConsumer consumer, MessageListenerOrderly listener) throws Exception {
        consumer.registerMessageListener(listener);
        consumer.start();
    }
}
