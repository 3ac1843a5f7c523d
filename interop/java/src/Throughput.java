import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import org.apache.zookeeper.AsyncCallback;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.Watcher.Event.KeeperState;
import org.apache.zookeeper.ZooKeeper;

/**
 * How fast Apache's Java client reads, for {@code cargo xtask bench-clients}.
 *
 * <p>Arguments: the server's address, the node to read, requests in flight, seconds of each load. Prints
 * {@code begin NAME} and {@code end NAME OPERATIONS SECONDS} around each load.
 */
public final class Throughput {
    public static void main(String[] args) throws Exception {
        String path = args[1];
        int inFlight = Integer.parseInt(args[2]);
        long nanos = (long) (Double.parseDouble(args[3]) * 1e9);
        CountDownLatch connected = new CountDownLatch(1);
        try (ZooKeeper zk = new ZooKeeper(args[0], 30_000, event -> {
            if (event.getState() == KeeperState.SyncConnected) {
                connected.countDown();
            }
        })) {
            connected.await();
            // Twice, because what is measured is the client that its virtual machine has compiled.
            pipelined(zk, "warm-up", path, inFlight, nanos);
            one(zk, "warm-up", path, nanos);
            pipelined(zk, "pipelined", path, inFlight, nanos);
            one(zk, "one", path, nanos);
        }
    }

    private static void pipelined(ZooKeeper zk, String name, String path, int inFlight, long nanos) throws Exception {
        Semaphore free = new Semaphore(inFlight);
        AsyncCallback.DataCallback done = (code, node, context, data, stat) -> {
            if (code != KeeperException.Code.OK.intValue()) {
                System.err.println("the server answered " + KeeperException.Code.get(code));
                System.exit(1);
            }
            free.release();
        };
        System.out.println("begin " + name);
        long start = System.nanoTime();
        long operations = 0;
        while (System.nanoTime() - start < nanos) {
            free.acquire();
            zk.getData(path, false, done, null);
            operations++;
        }
        if (!free.tryAcquire(inFlight, 30, TimeUnit.SECONDS)) {
            throw new IllegalStateException("replies are missing");
        }
        end(name, operations, start);
    }

    private static void one(ZooKeeper zk, String name, String path, long nanos) throws Exception {
        System.out.println("begin " + name);
        long start = System.nanoTime();
        long operations = 0;
        while (System.nanoTime() - start < nanos) {
            zk.getData(path, false, null);
            operations++;
        }
        end(name, operations, start);
    }

    private static void end(String name, long operations, long start) {
        System.out.println("end " + name + " " + operations + " " + (System.nanoTime() - start) / 1e9);
    }

    private Throughput() {}
}
