/** Runs the main method of another class, and ends the process at once when standard input ends: no orphan is left. */
public final class Leash {
    public static void main(String[] args) throws Exception {
        Thread watch = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {
                    continue;
                }
            } catch (java.io.IOException broken) {
                // as good as its end
            }
            Runtime.getRuntime().halt(137);
        }, "leash");
        watch.setDaemon(true);
        watch.start();
        Main.run(args);
    }
}
