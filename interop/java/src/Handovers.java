import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryForever;

/**
 * How often Curator's mutex changes hands, for {@code cargo xtask bench-handovers}: address, contenders, the
 * sessions that they are dealt out to, seconds. The example {@code handovers} of {@code ironkeeper-recipes} does the same.
 */
public final class Handovers {
    public static void main(String[] args) throws Exception {
        int contenders = Integer.parseInt(args[1]);
        int sessions = Integer.parseInt(args[2]);
        int seconds = Integer.parseInt(args[3]);
        AtomicLong handovers = new AtomicLong();
        AtomicBoolean done = new AtomicBoolean();
        List<CuratorFramework> clients = new ArrayList<>();
        for (int i = 0; i < sessions; i++) {
            CuratorFramework client = CuratorFrameworkFactory.newClient(args[0], new RetryForever(100));
            client.start();
            client.blockUntilConnected();
            clients.add(client);
        }
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < contenders; i++) {
            CuratorFramework client = clients.get(i % sessions);
            Thread thread = new Thread(() -> {
                InterProcessMutex mutex = new InterProcessMutex(client, "/handovers");
                try {
                    while (!done.get()) {
                        mutex.acquire();
                        handovers.incrementAndGet();
                        mutex.release();
                    }
                } catch (Exception e) {
                    e.printStackTrace();
                    System.exit(1);
                }
            });
            thread.start();
            threads.add(thread);
        }
        // The first ones are not counted: the virtual machine has to get warm.
        Thread.sleep(5_000);
        System.out.println("begin hand-overs");
        long before = handovers.get();
        long started = System.nanoTime();
        Thread.sleep(seconds * 1000L);
        double elapsed = (System.nanoTime() - started) / 1e9;
        System.out.println("end hand-overs " + (handovers.get() - before) + " " + elapsed);
        done.set(true);
        for (Thread thread : threads) {
            thread.join();
        }
        System.exit(0);
    }
}
