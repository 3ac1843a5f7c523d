import static java.nio.charset.StandardCharsets.UTF_8;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderSelector;
import org.apache.curator.framework.recipes.leader.LeaderSelectorListenerAdapter;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreMutex;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.framework.recipes.locks.Revoker;

/** Locks and elections: what one side holds the other does not. */
final class CuratorLocks extends Meeting {
    private static final int TIMES = 25;

    CuratorLocks(Meeting meeting) {
        super(meeting);
    }

    void run(Checks checks) {
        checks.check("mutex: Curator holds, Rust waits, and the other way round", this::mutexExcludes);
        checks.check("mutex: both count together", () -> count("mutex", "/count/mutex"));
        checks.check("mutex: Rust asks Curator to give way", this::rustRevokes);
        checks.check("mutex: Curator asks Rust to give way", this::curatorRevokes);
        checks.check("read/write lock: readers share, writers exclude", this::readersAndWriters);
        checks.check("read/write lock: Rust downgrades before a waiting writer", this::rustDowngrades);
        checks.check("read/write lock: Curator downgrades before a waiting writer", this::curatorDowngrades);
        checks.check("read/write lock: both count together", () -> count("write", "/count/write"));
        checks.check("semaphore: leases are counted together", this::semaphore);
        checks.check("semaphore mutex: both count together", () -> count("semaphore-mutex", "/count/sm"));
        checks.check("leader latch: leadership passes between both", this::latch);
        checks.check("leader selector: leadership passes between both", this::selector);
    }

    private void mutexExcludes() throws Exception {
        InterProcessMutex mutex = new InterProcessMutex(curator, "/mutex");
        mutex.acquire();
        rust.tell("try a mutex /mutex", "a busy");
        rust.tell("take b mutex /mutex");
        awaitChildren("/mutex", 2);
        Checks.that(!rust.hasSaid("b held"), "Rust waits");
        mutex.release();
        rust.await("b held");
        Checks.that(!mutex.acquire(0, TimeUnit.MILLISECONDS), "Curator does not get it");
        Future<Boolean> waiting = inBackground(() -> mutex.acquire(Checks.PATIENCE_MS, TimeUnit.MILLISECONDS));
        awaitChildren("/mutex", 2);
        rust.tell("release b", "b released");
        Checks.that(waiting.get(), "Curator gets it");
        Checks.equal(1, mutex.getParticipantNodes().size());
    }

    private void rustRevokes() throws Exception {
        InterProcessMutex mutex = new InterProcessMutex(curator, "/revoked-by-rust");
        CountDownLatch asked = new CountDownLatch(1);
        mutex.makeRevocable(revoked -> asked.countDown());
        mutex.acquire();
        rust.tell("revoke mutex /revoked-by-rust", "mutex asked");
        Checks.that(asked.await(Checks.PATIENCE_MS, TimeUnit.MILLISECONDS), "Curator hears of it");
        mutex.release();
    }

    private void curatorRevokes() throws Exception {
        rust.tell("take r mutex /revoked-by-curator", "r held");
        rust.tell("revocation r");
        String node = new InterProcessMutex(curator, "/revoked-by-curator").getParticipantNodes().iterator().next();
        Revoker.attemptRevoke(curator, node);
        rust.await("r revoked");
    }

    private void readersAndWriters() throws Exception {
        InterProcessReadWriteLock lock = new InterProcessReadWriteLock(curator, "/rw");
        lock.readLock().acquire();
        rust.tell("take a read /rw", "a held");
        rust.tell("try b write /rw", "b busy");
        lock.readLock().release();
        rust.tell("release a", "a released");
        rust.tell("take c write /rw", "c held");
        Checks.that(!lock.readLock().acquire(0, TimeUnit.MILLISECONDS), "no reader beside a writer");
        Checks.that(!lock.writeLock().acquire(0, TimeUnit.MILLISECONDS), "no second writer");
        rust.tell("release c", "c released");
        lock.writeLock().acquire();
        rust.tell("try d read /rw", "d busy");
        rust.tell("take e read /rw");
        awaitChildren("/rw", 2);
        lock.writeLock().release();
        rust.await("e held");
        rust.tell("release e", "e released");
    }

    private void rustDowngrades() throws Exception {
        InterProcessReadWriteLock lock = new InterProcessReadWriteLock(curator, "/rw-rust");
        rust.tell("take a write /rw-rust", "a held");
        Future<Boolean> writing =
                inBackground(() -> lock.writeLock().acquire(Checks.PATIENCE_MS, TimeUnit.MILLISECONDS));
        awaitChildren("/rw-rust", 2);
        rust.tell("downgrade a", "a held");
        awaitChildren("/rw-rust", 2);
        Checks.that(!writing.isDone(), "the writer waits for the reader that was a writer");
        rust.tell("release a", "a released");
        Checks.that(writing.get(), "then it writes");
    }

    private void curatorDowngrades() throws Exception {
        InterProcessReadWriteLock lock = new InterProcessReadWriteLock(curator, "/rw-curator");
        lock.writeLock().acquire();
        rust.tell("take a write /rw-curator");
        awaitChildren("/rw-curator", 2);
        lock.readLock().acquire();
        lock.writeLock().release();
        awaitChildren("/rw-curator", 2);
        Checks.that(!rust.hasSaid("a held"), "the writer waits for the reader that was a writer");
        lock.readLock().release();
        rust.await("a held");
        rust.tell("release a", "a released");
    }

    private void semaphore() throws Exception {
        InterProcessSemaphoreV2 semaphore = new InterProcessSemaphoreV2(curator, "/semaphore", 2);
        Lease mine = semaphore.acquire();
        rust.tell("take a semaphore /semaphore", "a held");
        rust.tell("try b semaphore /semaphore", "b busy");
        Checks.that(semaphore.acquire(1, TimeUnit.MILLISECONDS) == null, "no third lease");
        rust.tell("take c semaphore /semaphore");
        awaitChildren("/semaphore/leases", 3);
        semaphore.returnLease(mine);
        rust.await("c held");
        Future<Lease> waiting = inBackground(semaphore::acquire);
        awaitChildren("/semaphore/leases", 3);
        rust.tell("release a", "a released");
        semaphore.returnLease(waiting.get());
        rust.tell("release c", "c released");
        awaitChildren("/semaphore/leases", 0);
    }

    private void latch() throws Exception {
        try (LeaderLatch latch = new LeaderLatch(curator, "/latch", "curator")) {
            latch.start();
            Checks.that(latch.await(Checks.PATIENCE_MS, TimeUnit.MILLISECONDS), "Curator leads");
            rust.tell("take l latch /latch");
            awaitChildren("/latch", 2);
            rust.tell("leader latch /latch", "latch curator");
            Checks.that(!rust.hasSaid("l held"), "Rust waits");
        }
        rust.await("l held");
        try (LeaderLatch latch = new LeaderLatch(curator, "/latch", "curator")) {
            latch.start();
            awaitChildren("/latch", 2);
            Checks.equal("rust", latch.getLeader().getId());
            Checks.equal(2, latch.getParticipants().size());
            rust.tell("release l", "l released");
            Checks.that(latch.await(Checks.PATIENCE_MS, TimeUnit.MILLISECONDS), "Curator leads again");
        }
    }

    private void selector() throws Exception {
        CountDownLatch done = new CountDownLatch(1);
        CountDownLatch leads = new CountDownLatch(1);
        LeaderSelector selector = new LeaderSelector(curator, "/selector", new LeaderSelectorListenerAdapter() {
            @Override
            public void takeLeadership(CuratorFramework client) throws Exception {
                leads.countDown();
                done.await();
            }
        });
        selector.setId("curator");
        rust.tell("take s selector /selector", "s held");
        selector.start();
        awaitChildren("/selector", 2);
        Checks.equal("rust", selector.getLeader().getId());
        Checks.equal(1L, leads.getCount());
        rust.tell("release s", "s released");
        rust.await("selector gave way");
        Checks.that(leads.await(Checks.PATIENCE_MS, TimeUnit.MILLISECONDS), "Curator leads");
        rust.tell("leader selector /selector", "selector curator");
        rust.tell("take t selector /selector");
        awaitChildren("/selector", 2);
        Checks.that(!rust.hasSaid("t held"), "Rust waits");
        done.countDown();
        rust.await("t held");
        rust.tell("release t", "t released");
        rust.await("selector gave way");
        selector.close();
    }

    /** Both add to a counter that only the lock protects. */
    private void count(String kind, String path) throws Exception {
        String counter = path + "-count";
        rust.tell("counter " + counter, "counter " + counter);
        rust.tell("count x " + kind + " " + path + " " + TIMES);
        rust.tell("count y " + kind + " " + path + " " + TIMES);
        List<Future<Boolean>> counting = new ArrayList<>();
        for (int i = 0; i < 2; i++) {
            counting.add(inBackground(() -> {
                InterProcessLock lock = lock(kind, path);
                for (int time = 0; time < TIMES; time++) {
                    lock.acquire();
                    int before = Integer.parseInt(new String(curator.getData().forPath(counter), UTF_8));
                    curator.setData().forPath(counter, Integer.toString(before + 1).getBytes(UTF_8));
                    lock.release();
                }
                return true;
            }));
        }
        for (Future<Boolean> one : counting) {
            one.get(Checks.PATIENCE_MS, TimeUnit.MILLISECONDS);
        }
        rust.await("x counted");
        rust.await("y counted");
        Checks.equal(Integer.toString(4 * TIMES), new String(curator.getData().forPath(counter), UTF_8));
    }

    private InterProcessLock lock(String kind, String path) {
        switch (kind) {
            case "mutex":
                return new InterProcessMutex(curator, path);
            case "write":
                return new InterProcessReadWriteLock(curator, path).writeLock();
            default:
                return new InterProcessSemaphoreMutex(curator, path);
        }
    }
}
