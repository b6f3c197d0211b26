import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Asks numbered questions one after the other, and answers them itself by a consumer and a producer of their own: what
 * was asked, and "!" behind it. A line "answered" for each question, with the answer or why there was none; a line
 * "replied" for each reply. Settings: namesrv, topic, count (0: without
 * end), interval_ms, ttl_ms.
 */
public final class Ask {
    public static void main(String[] args) throws Exception {
        String namesrv = Line.need("namesrv");
        String topic = Line.need("topic");
        long count = Long.getLong("count", 0);
        long interval = Long.getLong("interval_ms", 20);
        long ttl = Long.getLong("ttl_ms", 3000);
        DefaultMQProducer replier = producer("repliers", namesrv);
        answer(topic, namesrv, replier);
        DefaultMQProducer asker = producer("askers", namesrv);
        Line.of("started").with("at_us", Line.micros()).print();
        for (long number = 0; count == 0 || number < count; number++) {
            ask(asker, topic, number, ttl);
            Thread.sleep(interval);
        }
        Line.of("ended").with("at_us", Line.micros()).print();
        System.exit(0);
    }

    private static DefaultMQProducer producer(String group, String namesrv) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(group);
        producer.setInstanceName(group);
        producer.setNamesrvAddr(namesrv);
        producer.start();
        return producer;
    }

    private static void ask(DefaultMQProducer asker, String topic, long number, long ttl) {
        Line line = Line.of("answered").with("number", number).with("begun_us", Line.micros());
        try {
            Message answer = asker.request(new Message(topic, Long.toString(number).getBytes(StandardCharsets.US_ASCII)), ttl);
            String said = new String(answer.getBody(), StandardCharsets.US_ASCII);
            line.with("ended_us", Line.micros()).with("ok", said.equals(number + "!")).with("said", said);
        } catch (Exception failure) {
            line.with("ended_us", Line.micros()).failed(failure);
        }
        line.print();
    }

    private static void answer(String topic, String namesrv, DefaultMQProducer replier) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("answers");
        consumer.setNamesrvAddr(namesrv);
        consumer.setPullInterval(0);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt asked : messages) {
                reply(replier, asked);
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
    }

    private static void reply(DefaultMQProducer replier, MessageExt asked) {
        String said = new String(asked.getBody(), StandardCharsets.US_ASCII);
        Line line = Line.of("replied").with("to", said);
        try {
            Message answer = MessageUtil.createReplyMessage(asked, (said + "!").getBytes(StandardCharsets.US_ASCII));
            line.with("ok", "SEND_OK".equals(replier.send(answer, 3000).getSendStatus().name()));
        } catch (Exception failure) {
            line.failed(failure);
        }
        line.print();
    }
}
