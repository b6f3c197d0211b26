import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.net.InetAddress;
import java.util.HashSet;
import java.util.Set;
import java.util.TreeMap;
import org.apache.rocketmq.common.annotation.ImportantField;

/** The keys of RocketMQ's servers: what MixAll.properties2Object sets, with the defaults. A line each: class, key,
    default, and whether `mqbroker -m` prints it, apart by tabs. What depends on the machine is told as ${home}, ${host}
    and ${address}. */
public final class Keys {
    public static void main(String[] args) throws Exception {
        for (String name : args) {
            Class<?> type = Class.forName(name);
            Object made = type.getDeclaredConstructor().newInstance();
            TreeMap<String, String> found = new TreeMap<>();
            for (Method setter : type.getMethods()) {
                String called = setter.getName();
                if (called.startsWith("set") && called.length() > 3 && setter.getParameterCount() == 1) {
                    found.put(called.substring(3, 4).toLowerCase() + called.substring(4), value(made, called.substring(3)));
                }
            }
            Set<String> important = new HashSet<>();
            for (Field field : type.getDeclaredFields()) {
                if (field.isAnnotationPresent(ImportantField.class)) {
                    important.add(field.getName());
                }
            }
            found.forEach((key, value) -> System.out.println(
                String.join("\t", type.getSimpleName(), key, value, important.contains(key) ? "important" : "")));
        }
    }

    private static String value(Object made, String name) throws Exception {
        for (String getter : new String[] {"get" + name, "is" + name}) {
            try {
                Object value = made.getClass().getMethod(getter).invoke(made);
                String text = value == null ? "" : value.toString();
                return text.contains("@") && value.getClass().getName().startsWith("org.apache") ? "" : machineless(text);
            } catch (NoSuchMethodException absent) {
                continue;
            }
        }
        return "";
    }

    private static String machineless(String text) throws Exception {
        text = text.replace(System.getProperty("user.home"), "${home}");
        if (text.equals(InetAddress.getLocalHost().getHostName())) {
            return "${host}";
        }
        return text.matches("\\d+\\.\\d+\\.\\d+\\.\\d+") && !text.equals("0.0.0.0") ? "${address}" : text;
    }
}
