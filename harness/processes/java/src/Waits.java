import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyRemotingClient;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RequestCode;
import org.apache.rocketmq.remoting.protocol.ResponseCode;
import org.apache.rocketmq.remoting.protocol.header.AckMessageRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.ExtraInfoUtil;
import org.apache.rocketmq.remoting.protocol.header.PopMessageRequestHeader;

/**
 * Loads of Load that wait for an answer of the other side.
 *
 * pop ADDRESS TOPIC GROUP THREADS MESSAGES SECONDS INVISIBLE_MS ACK BROKER: each thread pops 32 at a time from that
 * broker and, if ACK is true, acknowledges all of them at once, each by a request of its own as Java's consumer does,
 * until so many were popped; SECONDS is its patience. Latencies are those of a pop with its acknowledgements.
 * ask NAMESRV TOPIC MESSAGES: a request after the other, which a consumer in this process answers.
 */
final class Waits {
    private static final Map<String, DefaultMQProducer> ASKERS = new HashMap<>();
    private static NettyRemotingClient client;

    private Waits() {
    }

    static Line pop(String[] words) throws Exception {
        if (client == null) {
            client = new NettyRemotingClient(new NettyClientConfig());
            client.start();
        }
        long wanted = Long.parseLong(words[5]);
        long began = System.nanoTime();
        long until = began + (long) (Double.parseDouble(words[6]) * 1e9);
        AtomicLong got = new AtomicLong();
        AtomicLong failed = new AtomicLong();
        List<Long> took = new ArrayList<>();
        List<Thread> running = new ArrayList<>();
        for (int number = Integer.parseInt(words[4]); number > 0; number--) {
            Thread thread = new Thread(() -> {
                while (got.get() < wanted && System.nanoTime() < until) {
                    long start = System.nanoTime();
                    try {
                        int count = popped(words);
                        if (count > 0) {
                            got.addAndGet(count);
                            synchronized (took) {
                                took.add(System.nanoTime() - start);
                            }
                        }
                    } catch (Exception failure) {
                        failed.incrementAndGet();
                    }
                }
            });
            running.add(thread);
            thread.start();
        }
        for (Thread thread : running) {
            thread.join();
        }
        double seconds = (System.nanoTime() - began) / 1e9;
        return figures(got.get(), seconds, failed.get() + (got.get() < wanted ? 1 : 0), took);
    }

    private static int popped(String[] words) throws Exception {
        PopMessageRequestHeader header = new PopMessageRequestHeader();
        header.setTopic(words[2]);
        header.setConsumerGroup(words[3]);
        header.setQueueId(-1);
        header.setMaxMsgNums(32);
        header.setInvisibleTime(Long.parseLong(words[7]));
        header.setPollTime(1000);
        header.setBornTime(System.currentTimeMillis());
        header.setInitMode(0);
        RemotingCommand answer = client.invokeSync(
            words[1], RemotingCommand.createRequestCommand(RequestCode.POP_MESSAGE, header), 10_000);
        if (answer.getCode() != ResponseCode.SUCCESS) {
            return 0;
        }
        Map<String, String> told = answer.getExtFields();
        Map<String, Long> starts = ExtraInfoUtil.parseStartOffsetInfo(told.get("startOffsetInfo"));
        List<MessageExt> messages = MessageDecoder.decodes(ByteBuffer.wrap(answer.getBody()));
        List<CompletableFuture<RemotingCommand>> acks = new ArrayList<>();
        for (MessageExt message : messages) {
            if (!Boolean.parseBoolean(words[8])) {
                continue;
            }
            AckMessageRequestHeader ack = new AckMessageRequestHeader();
            ack.setTopic(words[2]);
            ack.setConsumerGroup(words[3]);
            ack.setQueueId(message.getQueueId());
            ack.setOffset(message.getQueueOffset());
            ack.setExtraInfo(ExtraInfoUtil.buildExtraInfo(
                starts.get(ExtraInfoUtil.getStartOffsetInfoMapKey(words[2], message.getQueueId())),
                Long.parseLong(told.get("popTime")), Long.parseLong(told.get("invisibleTime")),
                Integer.parseInt(told.get("reviveQid")), words[2], words[9], message.getQueueId(),
                message.getQueueOffset()));
            acks.add(client.invoke(
                words[1], RemotingCommand.createRequestCommand(RequestCode.ACK_MESSAGE, ack), 10_000));
        }
        for (CompletableFuture<RemotingCommand> ack : acks) {
            if (ack.get().getCode() != ResponseCode.SUCCESS) {
                throw new IllegalStateException(ack.get().getRemark());
            }
        }
        return messages.size();
    }

    static Line ask(String[] words) throws Exception {
        DefaultMQProducer asker = asker(words[1], words[2]);
        long count = Long.parseLong(words[3]);
        List<Long> took = new ArrayList<>();
        long failed = 0;
        long began = System.nanoTime();
        for (long number = 0; number < count; number++) {
            long start = System.nanoTime();
            try {
                asker.request(new Message(words[2], Long.toString(number).getBytes(StandardCharsets.US_ASCII)), 3000);
                took.add(System.nanoTime() - start);
            } catch (Exception failure) {
                failed++;
            }
        }
        return figures(took.size(), (System.nanoTime() - began) / 1e9, failed, took);
    }

    private static DefaultMQProducer asker(String namesrv, String topic) throws Exception {
        DefaultMQProducer asker = ASKERS.get(namesrv);
        if (asker != null) {
            return asker;
        }
        asker = producer("askers", namesrv);
        DefaultMQProducer replier = producer("repliers", namesrv);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("answers");
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName("answers-" + ASKERS.size());
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt asked : messages) {
                try {
                    replier.send(MessageUtil.createReplyMessage(asked, asked.getBody()), 3000);
                } catch (Exception failure) {
                    return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        ASKERS.put(namesrv, asker);
        return asker;
    }

    private static DefaultMQProducer producer(String group, String namesrv) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(group);
        producer.setInstanceName(group + "-" + ASKERS.size());
        producer.setNamesrvAddr(namesrv);
        producer.start();
        return producer;
    }

    private static Line figures(long messages, double seconds, long failed, List<Long> took) {
        long[] all = took.stream().mapToLong(Long::longValue).toArray();
        Arrays.sort(all);
        return Line.of("load").with("messages", messages).with("seconds", seconds)
            .with("per_second", messages / seconds).with("failed", failed)
            .with("p50_us", Load.at(all, 0.5)).with("p99_us", Load.at(all, 0.99)).with("max_us", Load.at(all, 1));
    }
}
