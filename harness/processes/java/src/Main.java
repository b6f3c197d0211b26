import java.lang.reflect.InvocationTargetException;
import java.util.Arrays;

/** Runs the main method of the class named first, with the other arguments; what it throws ends the process with 1. */
final class Main {
    static void run(String[] args) throws Exception {
        try {
            Class.forName(args[0]).getMethod("main", String[].class)
                .invoke(null, (Object) Arrays.copyOfRange(args, 1, args.length));
        } catch (InvocationTargetException failed) {
            failed.getCause().printStackTrace();
            System.exit(1);
        }
    }
}
