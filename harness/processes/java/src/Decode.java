import io.netty.buffer.Unpooled;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.common.ConfigManager;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.CommandCustomHeader;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;

/**
 * Reads bytes as RocketMQ's own classes do, and prints what they hold. Each line of its input has what they are, the
 * class that reads them or "-", and the bytes in base64: a frame (with the class of its header), a body, a file of
 * settings, or records. Events: started; read (said; of a frame fields besides, all of the header).
 */
public final class Decode {
    public static void main(String[] args) throws Exception {
        Line.of("started").print();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            Line said = Line.of("read").with("ok", true);
            try {
                read(said, words[0], words[1], Base64.getDecoder().decode(words[2]));
            } catch (Exception failure) {
                said.failed(failure);
            }
            said.print();
        }
    }

    private static void read(Line said, String kind, String name, byte[] bytes) throws Exception {
        Class<?> reader = name.equals("-") ? null : Class.forName(name);
        switch (kind) {
            case "frame":
                RemotingCommand command = RemotingCommand.decode(Unpooled.wrappedBuffer(bytes, 4, bytes.length - 4));
                said.with("fields", command.getExtFields()).with("said", reader == null ? command.getCode()
                    : command.decodeCommandCustomHeader(reader.asSubclass(CommandCustomHeader.class)));
                return;
            case "body":
                said.with("said", RemotingSerializable.decode(bytes, reader));
                return;
            case "file":
                ConfigManager file = reader.asSubclass(ConfigManager.class).getDeclaredConstructor().newInstance();
                file.decode(new String(bytes, StandardCharsets.UTF_8));
                said.with("said", file.encode(false));
                return;
            default:
                said.with("said", messages(MessageDecoder.decodes(ByteBuffer.wrap(bytes))));
        }
    }

    private static List<Map<String, Object>> messages(List<MessageExt> found) {
        List<Map<String, Object>> messages = new ArrayList<>();
        for (MessageExt message : found) {
            Map<String, Object> fields = new LinkedHashMap<>();
            fields.put("topic", message.getTopic());
            fields.put("body", new String(message.getBody(), StandardCharsets.UTF_8));
            fields.put("properties", message.getProperties());
            messages.add(fields);
        }
        return messages;
    }
}
