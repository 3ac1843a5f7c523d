import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.retry.RetryForever;

/** Where Curator and the Rust side meet: two sessions on one server, and what their checks share. */
class Meeting implements AutoCloseable {
    final Partner rust;
    final CuratorFramework curator;

    Meeting(String address, String program) throws Exception {
        curator = CuratorFrameworkFactory.newClient(address, 30_000, 10_000, new RetryForever(100));
        curator.start();
        curator.blockUntilConnected();
        rust = new Partner(program, address);
    }

    /** The same meeting, for one family of recipes. */
    Meeting(Meeting same) {
        rust = same.rust;
        curator = same.curator;
    }

    @Override
    public void close() {
        rust.close();
        curator.close();
    }

    final void awaitChildren(String path, int count) throws Exception {
        Checks.eventually(count + " children of " + path, () -> {
            return curator.checkExists().forPath(path) != null
                    && curator.getChildren().forPath(path).size() == count;
        });
    }

    interface Work<T> {
        T run() throws Exception;
    }

    /** On a thread of its own: to Curator the thread is who holds a lock. */
    static <T> Future<T> inBackground(Work<T> work) {
        ExecutorService thread = Executors.newSingleThreadExecutor(run -> {
            Thread daemon = new Thread(run);
            daemon.setDaemon(true);
            return daemon;
        });
        return thread.submit(work::run);
    }

    /** What came of work in the background. */
    static <T> T result(Future<T> work) throws Exception {
        return work.get(Checks.PATIENCE_MS, TimeUnit.MILLISECONDS);
    }
}
