import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStreamWriter;
import java.io.PrintWriter;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Predicate;

/** The Rust side: a process that does what it is told and says what came of it, line by line. */
final class Partner implements AutoCloseable {
    private final Process process;
    private final PrintWriter orders;
    /** What it has said and nobody has asked for yet. */
    private final List<String> said = new ArrayList<>();

    Partner(String program, String address) throws IOException {
        process = new ProcessBuilder(program, address).redirectError(ProcessBuilder.Redirect.INHERIT).start();
        orders = new PrintWriter(new OutputStreamWriter(process.getOutputStream(), StandardCharsets.UTF_8), true);
        Thread reader = new Thread(this::read, "partner");
        reader.setDaemon(true);
        reader.start();
    }

    private void read() {
        try (BufferedReader lines =
                new BufferedReader(new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8))) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                synchronized (this) {
                    said.add(line);
                    notifyAll();
                }
            }
        } catch (IOException ended) {
            // Whoever waits for a line finds out.
        }
    }

    /** Gives an order and does not wait. */
    void tell(String order) {
        orders.println(order);
    }

    /** Gives an order and waits for what it says. */
    void tell(String order, String answer) throws InterruptedException {
        tell(order);
        await(answer);
    }

    /** Waits until it says this. */
    void await(String answer) throws InterruptedException {
        find(answer, answer::equals);
    }

    /** Waits until it says something that begins like this, and returns what follows. */
    String next(String beginning) throws InterruptedException {
        return find(beginning, line -> line.startsWith(beginning)).substring(beginning.length());
    }

    private synchronized String find(String wanted, Predicate<String> isWanted) throws InterruptedException {
        long end = System.currentTimeMillis() + Checks.PATIENCE_MS;
        while (true) {
            for (String line : said) {
                if (isWanted.test(line)) {
                    said.remove(line);
                    return line;
                }
                Checks.that(!line.startsWith("error"), line);
            }
            long left = end - System.currentTimeMillis();
            Checks.that(left > 0, "the partner says \"" + wanted + "\", it said " + said);
            wait(left);
        }
    }

    synchronized boolean hasSaid(String answer) {
        return said.contains(answer);
    }

    @Override
    public void close() {
        orders.close();
        process.destroy();
    }
}
