import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.Callable;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.impl.MQClientAPIImpl;
import org.apache.rocketmq.client.impl.MQClientManager;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * Makes every call of RocketMQ's admin API to name servers and controllers once, and prints a line for each. Settings:
 * namesrv, and controllers (a ';' list) with replica, the id to elect; cluster, broker (a name), topic.
 */
public final class Operate {
    public static void main(String[] args) throws Exception {
        String namesrv = Line.need("namesrv");
        String cluster = System.getProperty("cluster", "DefaultCluster");
        String broker = Line.need("broker");
        String topic = Line.need("topic");
        DefaultMQAdminExt admin = new DefaultMQAdminExt(5000L);
        admin.setNamesrvAddr(namesrv);
        admin.start();
        MQClientAPIImpl api =
            MQClientManager.getInstance().getOrCreateMQClientInstance(admin).getMQClientAPIImpl();

        call("putKVConfig", () -> run(() -> api.putKVConfigValue("ns", "key", "a value", 5000)));
        call("getKVConfig", () -> api.getKVConfigValue("ns", "key", 5000));
        call("getKVConfig of nothing", () -> api.getKVConfigValue("ns", "absent", 5000));
        call("getKVList", () -> api.getKVListByNamespace("ns", 5000));
        call("getKVList of nothing", () -> api.getKVListByNamespace("absent", 5000));
        call("deleteKVConfig", () -> run(() -> api.deleteKVConfigValue("ns", "key", 5000)));
        call("clusterInfo", admin::examineBrokerClusterInfo);
        call("topicList", admin::fetchAllTopicList);
        call("topicsByCluster", () -> admin.fetchTopicsByCLuster(cluster));
        call("systemTopics", () -> api.getSystemTopicList(5000));
        call("unitTopics", () -> api.getUnitTopicList(true, 5000));
        call("unitSubTopics", () -> api.getHasUnitSubTopicList(true, 5000));
        call("unitSubUnUnitTopics", () -> api.getHasUnitSubUnUnitTopicList(true, 5000));
        call("route", () -> admin.examineTopicRouteInfo(topic));
        call("route of nothing", () -> admin.examineTopicRouteInfo("absent"));
        call("wipeWritePerm", () -> admin.wipeWritePermOfBroker(namesrv, broker));
        call("addWritePerm", () -> admin.addWritePermOfBroker(namesrv, broker));
        call("namesrvConfig", () -> admin.getNameServerConfig(null));
        call("updateNamesrvConfig", () -> run(() -> admin.updateNameServerConfig(of("unRegisterBrokerQueueCapacity", "3000"), null)));
        call("updateNamesrvConfig forbidden", () -> run(() -> admin.updateNameServerConfig(of("kvConfigPath", "elsewhere"), null)));
        call("deleteTopic", () -> run(() -> admin.deleteTopicInNameServer(Collections.singleton(namesrv), "absent")));
        call("deleteTopic in cluster", () -> run(() -> admin.deleteTopicInNameServer(Collections.singleton(namesrv), cluster, "absent")));

        for (String address : admin.examineBrokerClusterInfo().getBrokerAddrTable().get(broker).getBrokerAddrs().values()) {
            call("brokerEpoch " + address, () -> admin.getBrokerEpochCache(address));
            call("brokerHaStatus " + address, () -> admin.getBrokerHAStatus(address));
        }

        if (System.getProperty("controllers") != null) {
            List<String> controllers = Arrays.asList(Line.need("controllers").split(";"));
            for (String controller : controllers) {
                call("controllerMetaData", () -> admin.getControllerMetaData(controller));
            }
            String leader = admin.getControllerMetaData(controllers.get(0)).getControllerLeaderAddress();
            long replica = Long.parseLong(Line.need("replica"));
            call("syncStateData", () -> admin.getInSyncStateData(leader, Arrays.asList(broker, "absent")));
            call("syncStateData of nothing", () -> admin.getInSyncStateData(leader, Collections.emptyList()));
            call("controllerConfig", () -> admin.getControllerConfig(controllers));
            call("updateControllerConfig", () -> run(() -> admin.updateControllerConfig(of("electMasterMaxRetryCount", "3"), controllers)));
            call("updateControllerConfig forbidden", () -> run(() -> admin.updateControllerConfig(of("configStorePath", "elsewhere"), controllers)));
            call("electMaster", () -> admin.electMaster(leader, cluster, broker, replica));
            call("electMaster again", () -> admin.electMaster(leader, cluster, broker, replica));
            call("electMaster of nobody", () -> admin.electMaster(leader, cluster, broker, 77L));
            call("electMaster nowhere", () -> admin.electMaster(leader, cluster, "absent", 1L));
            call("cleanBrokerData living", () -> run(() -> admin.cleanControllerBrokerData(leader, cluster, broker, "1;2", false)));
            call("cleanBrokerData absent", () -> run(() -> admin.cleanControllerBrokerData(leader, cluster, "absent", null, false)));
        }
        admin.shutdown();
        System.exit(0);
    }

    private interface Action {
        void run() throws Exception;
    }

    private static Object run(Action action) throws Exception {
        action.run();
        return null;
    }

    private static Properties of(String key, String value) {
        Properties properties = new Properties();
        properties.setProperty(key, value);
        return properties;
    }

    private static void call(String name, Callable<Object> ask) {
        Line line = Line.of("called").with("call", name);
        try {
            line.with("ok", true).with("answer", ask.call());
        } catch (MQClientException refused) {
            line.with("code", refused.getResponseCode()).failed(refused);
        } catch (MQBrokerException refused) {
            line.with("code", refused.getResponseCode()).failed(refused);
        } catch (Exception failure) {
            line.failed(failure);
        }
        line.print();
    }
}
