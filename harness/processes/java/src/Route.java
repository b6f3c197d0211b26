import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.impl.MQClientManager;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.remoting.protocol.route.TopicRouteData;

/**
 * Asks the name server for the route of one topic, as clients do, and prints what the client made of the answer; again
 * and again until it is told to stop, or only once. Settings: namesrv, topic, interval_ms (0: once), timeout_ms.
 */
public final class Route {
    public static void main(String[] args) throws Exception {
        String topic = Line.need("topic");
        long interval = Long.getLong("interval_ms", 0);
        long timeout = Long.getLong("timeout_ms", 3000);
        DefaultMQProducer client = new DefaultMQProducer("router");
        client.setNamesrvAddr(Line.need("namesrv"));
        client.start();
        do {
            Line line = Line.of("route").with("begun_us", Line.micros());
            try {
                TopicRouteData route = MQClientManager.getInstance().getOrCreateMQClientInstance(client)
                    .getMQClientAPIImpl().getTopicRouteInfoFromNameServer(topic, timeout);
                line.with("ended_us", Line.micros()).with("ok", true).with("route", route);
            } catch (MQClientException refused) {
                line.with("ended_us", Line.micros()).with("code", refused.getResponseCode()).failed(refused);
            } catch (Exception failure) {
                line.with("ended_us", Line.micros()).failed(failure);
            }
            line.print();
            Thread.sleep(interval);
        } while (interval > 0);
        client.shutdown();
        System.exit(0);
    }
}
