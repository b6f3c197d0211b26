import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Puts load on any number of clusters, one after the other, as lines of standard input say; one line of JSON for each.
 *
 * send NAMESRV TOPIC THREADS BATCH BODY_BYTES SECONDS MESSAGES [FIRST_MS PER_SECOND | NAME]: each thread sends one
 * request after the other, for so long and at most so many messages (0: any number); with FIRST_MS they are timers, the
 * first one due then, the others at that rate behind it; with NAME each has a property of that name, 0 to 99 in turn.
 * transact, with the same words: messages in transactions that are committed.
 * consume NAMESRV TOPIC GROUP MESSAGES SECONDS [SQL]: a new group, from the first offset until it has so many;
 * SECONDS is its patience, SQL its filter, without blanks. pop, ask: as Waits says.
 *
 * Threads and clients are of one process, so all clusters meet the same warmed-up client. The end of standard input ends
 * it.
 */
public final class Load {
    private static final Map<String, DefaultMQProducer> PRODUCERS = new HashMap<>();
    private static final Map<String, TransactionMQProducer> TRANSACTORS = new HashMap<>();

    public static void main(String[] args) throws Exception {
        Line.of("started").with("at_us", Line.micros()).print();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.trim().split(" ");
            try {
                if (words[0].equals("consume")) {
                    consume(words).print();
                } else if (words[0].equals("pop")) {
                    Waits.pop(words).print();
                } else if (words[0].equals("ask")) {
                    Waits.ask(words).print();
                } else {
                    send(words).print();
                }
            } catch (Exception failure) {
                Line.of("load").failed(failure).print();
            }
        }
        Runtime.getRuntime().halt(0);
    }

    private static DefaultMQProducer producer(String namesrv) throws Exception {
        DefaultMQProducer producer = PRODUCERS.get(namesrv);
        if (producer == null) {
            producer = new DefaultMQProducer("load");
            producer.setNamesrvAddr(namesrv);
            producer.setInstanceName("load-" + PRODUCERS.size());
            producer.setRetryTimesWhenSendFailed(0);
            producer.setDefaultTopicQueueNums(8);
            producer.start();
            PRODUCERS.put(namesrv, producer);
        }
        return producer;
    }

    private static TransactionMQProducer transactor(String namesrv) throws Exception {
        TransactionMQProducer producer = TRANSACTORS.get(namesrv);
        if (producer == null) {
            producer = new TransactionMQProducer("load-transactions");
            producer.setNamesrvAddr(namesrv);
            producer.setInstanceName("load-transactions-" + TRANSACTORS.size());
            producer.setRetryTimesWhenSendFailed(0);
            producer.setTransactionListener(new TransactionListener() {
                @Override
                public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                    return LocalTransactionState.COMMIT_MESSAGE;
                }

                @Override
                public LocalTransactionState checkLocalTransaction(MessageExt message) {
                    return LocalTransactionState.COMMIT_MESSAGE;
                }
            });
            producer.start();
            TRANSACTORS.put(namesrv, producer);
        }
        return producer;
    }

    private static SendResult sent(String[] words, byte[] body, int batch, long number) throws Exception {
        if (words[0].equals("transact")) {
            return transactor(words[1]).sendMessageInTransaction(new Message(words[2], body), null);
        }
        DefaultMQProducer producer = producer(words[1]);
        if (batch > 1) {
            return producer.send(batch(words[2], body, batch));
        }
        Message message = new Message(words[2], body);
        if (words.length == 9) {
            message.putUserProperty(words[8], Long.toString(number % 100));
        } else if (words.length > 9) {
            message.setDeliverTimeMs(Long.parseLong(words[8]) + (long) (number * 1e3 / Double.parseDouble(words[9])));
        }
        return producer.send(message);
    }

    private static Line send(String[] words) throws Exception {
        if (words[0].equals("transact")) {
            transactor(words[1]);
        } else {
            producer(words[1]);
        }
        AtomicLong numbers = new AtomicLong();
        int threads = Integer.parseInt(words[3]);
        int batch = Integer.parseInt(words[4]);
        byte[] body = new byte[Integer.parseInt(words[5])];
        Arrays.fill(body, (byte) '.');
        long most = Long.parseLong(words[7]);
        long began = System.nanoTime();
        long until = began + (long) (Double.parseDouble(words[6]) * 1e9);
        AtomicLong stored = new AtomicLong();
        AtomicLong failed = new AtomicLong();
        List<long[]> latencies = new ArrayList<>();
        Map<String, Integer> failures = new HashMap<>();
        List<Thread> running = new ArrayList<>();
        for (int number = 0; number < threads; number++) {
            Thread thread = new Thread(() -> {
                long[] took = new long[1 << 12];
                int count = 0;
                while (System.nanoTime() < until && (most == 0 || stored.get() < most)) {
                    long start = System.nanoTime();
                    String fault;
                    try {
                        SendResult result = sent(words, body, batch, numbers.getAndIncrement());
                        fault = result.getSendStatus() == SendStatus.SEND_OK ? null : result.getSendStatus().name();
                    } catch (Exception failure) {
                        fault = failure.getClass().getSimpleName() + ": " + failure.getMessage();
                    }
                    if (fault == null) {
                        stored.addAndGet(batch);
                        if (count == took.length) {
                            took = Arrays.copyOf(took, 2 * count);
                        }
                        took[count++] = System.nanoTime() - start;
                    } else {
                        failed.incrementAndGet();
                        synchronized (failures) {
                            failures.merge(fault.substring(0, Math.min(120, fault.length())), 1, Integer::sum);
                        }
                    }
                }
                synchronized (latencies) {
                    latencies.add(Arrays.copyOf(took, count));
                }
            });
            running.add(thread);
            thread.start();
        }
        for (Thread thread : running) {
            thread.join();
        }
        double seconds = (System.nanoTime() - began) / 1e9;
        long[] all = latencies.stream().flatMapToLong(Arrays::stream).sorted().toArray();
        Line line = Line.of("load").with("messages", stored.get()).with("seconds", seconds)
            .with("per_second", stored.get() / seconds).with("failed", failed.get())
            .with("p50_us", at(all, 0.5)).with("p99_us", at(all, 0.99)).with("max_us", at(all, 1));
        return failures.isEmpty() ? line : line.with("failures", failures.toString());
    }

    private static List<Message> batch(String topic, byte[] body, int size) {
        List<Message> messages = new ArrayList<>(size);
        for (int at = 0; at < size; at++) {
            messages.add(new Message(topic, body));
        }
        return messages;
    }

    static double at(long[] sorted, double share) {
        return sorted.length == 0 ? 0 : sorted[Math.min((int) (sorted.length * share), sorted.length - 1)] / 1e3;
    }

    private static Line consume(String[] words) throws Exception {
        long wanted = Long.parseLong(words[4]);
        AtomicLong got = new AtomicLong();
        AtomicLong first = new AtomicLong();
        CountDownLatch all = new CountDownLatch(1);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(words[3]);
        consumer.setNamesrvAddr(words[1]);
        consumer.setInstanceName(words[3]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        if (words.length > 6) {
            consumer.subscribe(words[2], MessageSelector.bySql(words[6]));
        } else {
            consumer.subscribe(words[2], "*");
        }
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            first.compareAndSet(0, System.nanoTime());
            if (got.addAndGet(messages.size()) >= wanted) {
                all.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        boolean whole = all.await((long) (Double.parseDouble(words[5]) * 1e3), TimeUnit.MILLISECONDS);
        double seconds = first.get() == 0 ? 0 : (System.nanoTime() - first.get()) / 1e9;
        consumer.shutdown();
        return Line.of("load").with("messages", got.get()).with("seconds", seconds)
            .with("per_second", seconds == 0 ? 0 : got.get() / seconds).with("failed", whole ? 0 : 1);
    }
}
