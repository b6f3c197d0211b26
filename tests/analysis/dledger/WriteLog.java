import io.openmessaging.storage.dledger.DLedgerConfig;
import io.openmessaging.storage.dledger.DLedgerServer;
import io.openmessaging.storage.dledger.protocol.AppendEntryRequest;
import io.openmessaging.storage.dledger.protocol.AppendEntryResponse;

/** A group of one DLedger server, which appends numbered entries and stops: its directory is what the test reads. */
public final class WriteLog {
    public static void main(String[] args) throws Exception {
        DLedgerConfig config = new DLedgerConfig();
        config.setGroup("g1");
        config.setSelfId("n0");
        config.setPeers("n0-127.0.0.1:" + args[1]);
        config.setStoreBaseDir(args[0]);
        config.setMappedFileSizeForEntryData(64 * 1024);
        config.setMappedFileSizeForEntryIndex(32 * 1024);
        config.setMinVoteIntervalMs(50);
        config.setMaxVoteIntervalMs(100);
        DLedgerServer server = new DLedgerServer(config);
        server.startup();
        while (!server.getMemberState().isLeader()) {
            Thread.sleep(10);
        }
        int count = Integer.parseInt(args[2]);
        for (int i = 0; i < count; i++) {
            AppendEntryRequest request = new AppendEntryRequest();
            request.setGroup("g1");
            request.setRemoteId("n0");
            StringBuilder body = new StringBuilder("entry " + i + " ");
            for (int j = 0; j < i % 97; j++) {
                body.append('x');
            }
            request.setBody(body.toString().getBytes("UTF-8"));
            AppendEntryResponse response = server.handleAppend(request).get();
            if (response.getCode() != 200 || response.getIndex() != i) {
                throw new IllegalStateException("append " + i + ": code " + response.getCode());
            }
        }
        System.out.println("term " + server.getMemberState().currTerm());
        server.shutdown();
        System.exit(0);
    }
}
