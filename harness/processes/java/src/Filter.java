import java.nio.charset.StandardCharsets;
import java.util.Base64;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Pulls the first message of a topic's queue with one filter after the other, and prints what came of each: a status, or
 * "CODE" and what the broker refuses it with. Settings: namesrv, topic, filters: each in base64, with blanks between.
 */
public final class Filter {
    public static void main(String[] args) throws Exception {
        String topic = Line.need("topic");
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("filters");
        consumer.setNamesrvAddr(Line.need("namesrv"));
        consumer.getRegisterTopics().add(topic);  // a heartbeat goes to its brokers, whose versions come back
        consumer.start();
        MessageQueue queue = null;
        while (queue == null || said(consumer, queue, "TRUE").startsWith("CLIENT")) {
            Thread.sleep(100);
            queue = first(consumer, topic);
        }
        Line.of("started").print();
        for (String each : Line.need("filters").split(" ")) {
            String filter = new String(Base64.getDecoder().decode(each), StandardCharsets.UTF_8);
            Line.of("pulled").with("filter", filter).with("said", said(consumer, queue, filter)).print();
        }
        Thread.sleep(Long.MAX_VALUE);
    }

    private static MessageQueue first(DefaultMQPullConsumer consumer, String topic) {
        try {
            return consumer.fetchSubscribeMessageQueues(topic).iterator().next();
        } catch (MQClientException unknown) {
            return null;
        }
    }

    private static String said(DefaultMQPullConsumer consumer, MessageQueue queue, String filter) throws Exception {
        try {
            return consumer.pull(queue, MessageSelector.bySql(filter), 0, 32).getPullStatus().name();
        } catch (MQBrokerException refused) {
            return "CODE " + refused.getResponseCode();
        } catch (MQClientException failure) {
            return "CLIENT " + failure.getErrorMessage();
        }
    }
}
