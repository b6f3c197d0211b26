import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;

/** What a consumer was to receive, by number, and what it received. Any thread may tell it. */
final class Check {
    private final String name;
    private final Set<Long> wanted = new TreeSet<>();
    private final Set<Long> seen = new HashSet<>();
    private final List<String> wrong = new ArrayList<>();
    private long again;

    Check(String name) {
        this.name = name;
    }

    synchronized void want(long number) {
        wanted.add(number);
    }

    synchronized void see(long number) {
        if (!seen.add(number)) {
            again++;
        }
    }

    synchronized void wrong(String what) {
        wrong.add(what);
    }

    synchronized boolean complete() {
        return seen.containsAll(wanted);
    }

    /** One line; of what is missing or wrong, the first few. */
    synchronized void print() {
        List<Long> missing = new ArrayList<>(wanted);
        missing.removeAll(seen);
        Line.of("verdict").with("check", name).with("ok", missing.isEmpty() && wrong.isEmpty() && !wanted.isEmpty())
            .with("wanted", wanted.size()).with("seen", seen.size()).with("again", again)
            .with("missing", missing.size()).with("first_missing", missing.subList(0, Math.min(5, missing.size())))
            .with("wrong", wrong.subList(0, Math.min(5, wrong.size()))).print();
    }
}
