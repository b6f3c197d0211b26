/** Runs another class and ends the process when its main returns, not only when its last thread has idled out. */
public final class Once {
    public static void main(String[] args) throws Exception {
        Main.run(args);
        System.exit(0);
    }
}
