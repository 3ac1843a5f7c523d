import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentSkipListSet;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.cache.CuratorCache;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryForever;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;

/**
 * Curator's recipes on an ensemble whose leader is killed and started again while they work ({@code @restart} has
 * that effect here). Argument: all members.
 */
public final class CuratorFailover {
    private static final int CLIENTS = 3;
    private static final int KILLS = 3;
    /** Turns everybody has between two kills. */
    private static final int TURNS = 10;

    private final Checks checks = new Checks();
    private final List<CuratorFramework> clients = new ArrayList<>();
    private final AtomicBoolean done = new AtomicBoolean();
    private final AtomicReference<Throwable> trouble = new AtomicReference<>();
    private final List<Thread> threads = new ArrayList<>();

    public static void main(String[] args) throws Exception {
        CuratorFailover driver = new CuratorFailover(args[0]);
        driver.run();
        driver.checks.finish();
    }

    private CuratorFailover(String members) throws Exception {
        for (int i = 0; i < CLIENTS; i++) {
            CuratorFramework client = CuratorFrameworkFactory.builder()
                    .connectString(members)
                    .retryPolicy(new RetryForever(50))
                    .sessionTimeoutMs(30_000)
                    .build();
            client.start();
            client.blockUntilConnected();
            clients.add(client);
        }
    }

    private CuratorFramework first() {
        return clients.get(0);
    }

    private void run() throws Exception {
        for (String path : new String[] {"/appended", "/counter", "/latch", "/mutex"}) {
            first().create().forPath(path, "0".getBytes(StandardCharsets.UTF_8));
        }
        List<Long> sessions = new ArrayList<>();
        for (int i = 0; i < CLIENTS; i++) {
            sessions.add(session(clients.get(i)));
            clients.get(i).create().withMode(CreateMode.EPHEMERAL).forPath("/alive-" + i);
        }
        CuratorCache cache = CuratorCache.build(first(), "/appended");
        cache.start();
        List<LeaderLatch> latches = new ArrayList<>();
        for (CuratorFramework client : clients) {
            LeaderLatch latch = new LeaderLatch(client, "/latch");
            latch.start();
            latches.add(latch);
        }
        Set<String> appended = new ConcurrentSkipListSet<>();
        AtomicInteger turns = new AtomicInteger();
        AtomicInteger holders = new AtomicInteger();
        for (int i = 0; i < CLIENTS; i++) {
            work(clients.get(i), i, appended, turns, holders);
        }
        for (int kill = 0; kill < KILLS; kill++) {
            int before = turns.get();
            Checks.eventually("turns before the kill", () -> turns.get() >= before + TURNS || trouble.get() != null);
            Checks.restartServer();
            int after = turns.get();
            checks.check("work goes on after the leader's death", () ->
                    Checks.eventually("turns", () -> turns.get() >= after + TURNS || trouble.get() != null));
            checks.check("exactly one leads", () -> Checks.eventually("one latch", () ->
                    latches.stream().filter(LeaderLatch::hasLeadership).count() == 1));
        }
        done.set(true);
        for (Thread thread : threads) {
            thread.join();
        }
        checks.check("nobody was in anybody's way", () -> Checks.equal(null, trouble.get()));
        checks.check("what was protected by the mutex is counted right", () -> {
            first().sync().forPath("/counter");
            String value = new String(first().getData().forPath("/counter"), StandardCharsets.UTF_8);
            Checks.equal(turns.get(), Integer.parseInt(value));
        });
        checks.check("everything acknowledged is there", () -> {
            first().sync().forPath("/appended");
            Set<String> there = new TreeSet<>(first().getChildren().forPath("/appended"));
            Checks.that(there.containsAll(appended), "all of " + appended.size());
            Checks.eventually("the cache holds the same", () -> {
                Set<String> cached = new TreeSet<>();
                cache.stream().map(data -> data.getPath()).filter(path -> path.length() > "/appended".length())
                        .forEach(path -> cached.add(path.substring("/appended/".length())));
                return cached.equals(there);
            });
        });
        checks.check("sessions and their nodes are still there", () -> {
            for (int i = 0; i < CLIENTS; i++) {
                Checks.equal(sessions.get(i), session(clients.get(i)));
                long owner = first().checkExists().forPath("/alive-" + i).getEphemeralOwner();
                Checks.equal(sessions.get(i), owner);
            }
        });
        for (LeaderLatch latch : latches) {
            latch.close();
        }
        cache.close();
        clients.forEach(CuratorFramework::close);
    }

    /** Turns of one client: the mutex, a read and a write of the counter under it, and a node of its own. */
    private void work(
            CuratorFramework client, int number, Set<String> appended, AtomicInteger turns, AtomicInteger holders) {
        Thread thread = new Thread(() -> {
            InterProcessMutex mutex = new InterProcessMutex(client, "/mutex");
            try {
                for (int turn = 0; !done.get(); turn++) {
                    Checks.that(mutex.acquire(Checks.PATIENCE_MS, TimeUnit.MILLISECONDS), "the mutex is granted");
                    Checks.equal(1, holders.incrementAndGet());
                    count(client);
                    turns.incrementAndGet();
                    Checks.equal(0, holders.decrementAndGet());
                    mutex.release();
                    String name = number + "-" + turn;
                    try {
                        client.create().forPath("/appended/" + name);
                    } catch (KeeperException.NodeExistsException e) {
                        // Curator has tried again after a lost answer.
                    }
                    appended.add(name);
                }
            } catch (Throwable e) {
                e.printStackTrace();
                trouble.compareAndSet(null, e);
            }
        });
        thread.start();
        threads.add(thread);
    }

    /** Adds one, exactly once: nobody else writes, so a lost answer can be told from a lost request. */
    private static void count(CuratorFramework client) throws Exception {
        client.sync().forPath("/counter");
        int value = Integer.parseInt(new String(client.getData().forPath("/counter"), StandardCharsets.UTF_8));
        byte[] next = Integer.toString(value + 1).getBytes(StandardCharsets.UTF_8);
        client.setData().forPath("/counter", next);
    }

    private static long session(CuratorFramework client) throws Exception {
        return client.getZookeeperClient().getZooKeeper().getSessionId();
    }
}
