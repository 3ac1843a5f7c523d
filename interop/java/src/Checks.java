import java.io.IOException;
import java.util.Objects;
import java.util.concurrent.TimeUnit;

/**
 * What the Java drivers share: one line per check, a closing count, and the wish for a server restart.
 *
 * <p>The lines are read by {@code cargo xtask interop}. Every wait is for an event and only bounded in time.
 */
final class Checks {
    /** The longest any awaited event may take; nothing depends on it being short. */
    static final long PATIENCE_MS = 30_000;

    interface Body {
        void run() throws Exception;
    }

    interface Question {
        boolean ask() throws Exception;
    }

    private int passed;
    private int failed;

    void check(String name, Body body) {
        long start = System.nanoTime();
        try {
            body.run();
            passed++;
            System.out.println("ok " + name);
        } catch (Throwable why) {
            failed++;
            System.out.println("FAIL " + name + ": " + String.valueOf(why).replace('\n', ' '));
            why.printStackTrace();
        }
        System.out.flush();
        System.err.println(name + ": " + (System.nanoTime() - start) / 1_000_000 + " ms");
    }

    /** Prints the closing line and ends the process; threads of a client must not keep it alive. */
    void finish() {
        System.out.println(passed + " passed, " + failed + " failed");
        System.out.flush();
        System.exit(failed == 0 ? 0 : 1);
    }

    /** Has the server stopped and started again on its data. */
    static void restartServer() throws IOException {
        System.out.println("@restart");
        System.out.flush();
        if (System.in.read() < 0) {
            throw new IOException("nobody restarts the server");
        }
    }

    static void equal(Object wanted, Object got) {
        if (!Objects.equals(wanted, got)) {
            throw new AssertionError("wanted " + wanted + ", got " + got);
        }
    }

    static void that(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError("not true: " + what);
        }
    }

    /** The body has to throw exactly this exception. */
    static <E extends Exception> E fails(Class<E> wanted, Body body) throws Exception {
        try {
            body.run();
        } catch (Exception e) {
            if (wanted.isInstance(e)) {
                return wanted.cast(e);
            }
            throw new AssertionError("wanted " + wanted.getSimpleName() + ", got " + e, e);
        }
        throw new AssertionError("wanted " + wanted.getSimpleName() + ", got a result");
    }

    /** Asks until the answer is yes; for states of the server that send no event. */
    static void eventually(String what, Question question) throws Exception {
        long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(PATIENCE_MS);
        while (!question.ask()) {
            that(System.nanoTime() < end, what);
            Thread.sleep(20);
        }
    }
}
