import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.recipes.barriers.DistributedBarrier;
import org.apache.curator.framework.recipes.barriers.DistributedDoubleBarrier;

/** Barriers: nobody passes alone. */
final class CuratorBarriers extends Meeting {
    private static final int ROUNDS = 4;

    CuratorBarriers(Meeting meeting) {
        super(meeting);
    }

    void run(Checks checks) {
        checks.check("barrier: Rust waits at Curator's", this::rustWaits);
        checks.check("barrier: Curator waits at one of Rust's", this::curatorWaits);
        checks.check("double barrier: both enter and leave together", this::doubleBarrier);
    }

    private void rustWaits() throws Exception {
        DistributedBarrier barrier = new DistributedBarrier(curator, "/barriers/java");
        barrier.setBarrier();
        rust.tell("pass a /barriers/java");
        // This question travels behind the one of the waiter.
        rust.tell("barrier /barriers/java", "/barriers/java set");
        Checks.that(!rust.hasSaid("a passed"), "Rust waits");
        barrier.removeBarrier();
        rust.await("a passed");
        rust.tell("barrier /barriers/java", "/barriers/java open");
    }

    private void curatorWaits() throws Exception {
        rust.tell("set-barrier /barriers/rust", "/barriers/rust set");
        DistributedBarrier barrier = new DistributedBarrier(curator, "/barriers/rust");
        Checks.that(!barrier.waitOnBarrier(50, TimeUnit.MILLISECONDS), "Curator does not pass");
        Future<Boolean> waiting =
                inBackground(() -> barrier.waitOnBarrier(Checks.PATIENCE_MS, TimeUnit.MILLISECONDS));
        rust.tell("remove-barrier /barriers/rust", "/barriers/rust open");
        Checks.that(result(waiting), "Curator passes");
    }

    /** Who leaves last is whose name is the smallest. Names are drawn, so there are several rounds. */
    private void doubleBarrier() throws Exception {
        for (int round = 0; round < ROUNDS; round++) {
            DistributedDoubleBarrier mine = new DistributedDoubleBarrier(curator, "/barriers/double", 3);
            Future<Boolean> entering = inBackground(() -> mine.enter(Checks.PATIENCE_MS, TimeUnit.MILLISECONDS));
            rust.tell("enter a /barriers/double 3");
            awaitChildren("/barriers/double", 2);
            Checks.that(!rust.hasSaid("a held"), "two are not enough");
            rust.tell("enter b /barriers/double 3", "b held");
            rust.await("a held");
            Checks.that(result(entering), "Curator is inside");

            rust.tell("release a");
            Future<Boolean> leaving = inBackground(() -> mine.leave(Checks.PATIENCE_MS, TimeUnit.MILLISECONDS));
            rust.tell("barrier /barriers/none", "/barriers/none open");
            Checks.that(!rust.hasSaid("a released"), "nobody leaves while the third is inside");
            rust.tell("release b", "b released");
            rust.await("a released");
            Checks.that(result(leaving), "Curator is outside");
        }
    }
}
