import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Sends numbered messages in transactions, one after the other, and answers checks until it is killed. Settings:
 * namesrv, topic, group, count, interval_ms, local_ms (what the local transaction takes), immunity_s (0: none), plans:
 * what becomes of each message in turn, such as "COMMIT;UNKNOW/UNKNOW/ROLLBACK": first the local transaction, then each
 * check, the last word again and again. Lines: sent, with its result; checked, with the answer.
 */
public final class Transact {
    private static final Map<String, Integer> CHECKS = new ConcurrentHashMap<>();

    public static void main(String[] args) throws Exception {
        String topic = Line.need("topic");
        String[] plans = Line.need("plans").split(";");
        long count = Long.getLong("count", 0);
        long interval = Long.getLong("interval_ms", 20);
        int immunity = Integer.getInteger("immunity_s", 0);
        TransactionMQProducer producer = new TransactionMQProducer(System.getProperty("group", "transactor"));
        producer.setNamesrvAddr(Line.need("namesrv"));
        producer.setTransactionListener(new Decides());
        producer.start();
        Line.of("started").with("at_us", Line.micros()).print();
        for (long sequence = 0; sequence < count; sequence++) {
            Message message = new Message(topic, (sequence + " ").getBytes(StandardCharsets.US_ASCII));
            message.putUserProperty("plan", plans[(int) (sequence % plans.length)]);
            if (immunity > 0) {
                message.putUserProperty("CHECK_IMMUNITY_TIME_IN_SECONDS", String.valueOf(immunity));
            }
            long begun = Line.micros();
            Line line = Line.of("sent").with("sequence", sequence).with("begun_us", begun);
            try {
                SendResult result = producer.sendMessageInTransaction(message, null);
                line.with("ended_us", Line.micros()).with("ok", "SEND_OK".equals(result.getSendStatus().name()))
                    .with("status", result.getSendStatus().name()).with("offset", result.getQueueOffset())
                    .with("queue", result.getMessageQueue().getQueueId()).with("id", result.getOffsetMsgId())
                    .with("unique", result.getMsgId()).with("transaction", result.getTransactionId());
            } catch (Exception failure) {
                line.with("ended_us", Line.micros()).failed(failure);
            }
            line.print();
            Thread.sleep(interval);
        }
        Line.of("ended").with("at_us", Line.micros()).print();
        Thread.sleep(Long.MAX_VALUE);
    }

    private static final class Decides implements TransactionListener {
        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            try {
                Thread.sleep(Long.getLong("local_ms", 0));
            } catch (InterruptedException stopped) {
                return LocalTransactionState.UNKNOW;
            }
            return said(message, 0);
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            LocalTransactionState answer = said(message, CHECKS.merge(message.getTransactionId(), 1, Integer::sum));
            Line.of("checked").with("at_us", Line.micros()).with("answer", answer.name())
                .with("sequence", Long.parseLong(new String(message.getBody(), StandardCharsets.US_ASCII).trim()))
                .with("topic", message.getTopic()).with("queue", message.getQueueId())
                .with("offset", message.getQueueOffset()).with("transaction", message.getTransactionId())
                .with("times", message.getUserProperty("TRANSACTION_CHECK_TIMES"))
                .with("born_us", message.getBornTimestamp() * 1000).print();
            return answer;
        }

        private static LocalTransactionState said(Message message, int number) {
            String[] words = message.getUserProperty("plan").split("/");
            String word = words[Math.min(number, words.length - 1)];
            return LocalTransactionState.valueOf("UNKNOW".equals(word) ? word : word + "_MESSAGE");
        }
    }
}
