import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryForever;

/**
 * How often Curator's mutex changes hands, for {@code cargo xtask bench-handovers}: address, path, contenders, and the
 * sessions that they are dealt out to. The example {@code handovers} of {@code ironkeeper-recipes} does the same.
 */
public final class Handovers {
    public static void main(String[] args) throws Exception {
        String path = args[1];
        int contenders = Integer.parseInt(args[2]);
        int sessions = Integer.parseInt(args[3]);
        AtomicLong handovers = new AtomicLong();
        List<CuratorFramework> clients = new ArrayList<>();
        for (int i = 0; i < sessions; i++) {
            CuratorFramework client = CuratorFrameworkFactory.newClient(args[0], new RetryForever(100));
            client.start();
            client.blockUntilConnected();
            clients.add(client);
        }
        for (int i = 0; i < contenders; i++) {
            CuratorFramework client = clients.get(i % sessions);
            new Thread(() -> {
                InterProcessMutex mutex = new InterProcessMutex(client, path);
                try {
                    while (true) {
                        mutex.acquire();
                        handovers.incrementAndGet();
                        mutex.release();
                    }
                } catch (Exception e) {
                    e.printStackTrace();
                    System.exit(1);
                }
            }).start();
        }
        while (true) {
            Thread.sleep(1000);
            System.out.println(handovers.getAndSet(0) + "/s");
        }
    }
}
