import static java.nio.charset.StandardCharsets.UTF_8;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.recipes.atomic.AtomicValue;
import org.apache.curator.framework.recipes.atomic.CachedAtomicInteger;
import org.apache.curator.framework.recipes.atomic.CachedAtomicLong;
import org.apache.curator.framework.recipes.atomic.DistributedAtomicInteger;
import org.apache.curator.framework.recipes.atomic.DistributedAtomicLong;
import org.apache.curator.framework.recipes.atomic.DistributedAtomicNumber;
import org.apache.curator.framework.recipes.atomic.PromotedToLock;
import org.apache.curator.framework.recipes.shared.SharedCount;
import org.apache.curator.framework.recipes.shared.SharedValue;
import org.apache.curator.framework.recipes.shared.VersionedValue;
import org.apache.curator.retry.RetryForever;
import org.apache.curator.retry.RetryNTimes;

/** Shared values and atomic numbers: both sides see the same, and no change is lost. */
final class CuratorCounters extends Meeting {
    private static final int TIMES = 40;

    CuratorCounters(Meeting meeting) {
        super(meeting);
    }

    void run(Checks checks) {
        checks.check("shared count: both see what the other writes", this::sharedCount);
        checks.check("shared value: both see what the other writes", this::sharedValue);
        checks.check("atomic long: both add, nothing is lost", () -> {
            String path = "/atomic/long";
            addTogether(new DistributedAtomicLong(curator, path, new RetryForever(1)), 3L, "long", path, 1);
            Checks.equal(ByteBuffer.allocate(8).putLong(TIMES * 4L).flip(), bytes(path));
        });
        checks.check("atomic integer: both add, nothing is lost", () -> {
            String path = "/atomic/integer";
            addTogether(new DistributedAtomicInteger(curator, path, new RetryForever(1)), -5, "integer", path, 1);
            Checks.equal(ByteBuffer.allocate(4).putInt(TIMES * -4).flip(), bytes(path));
        });
        checks.check("atomic long, promoted to one lock: both add, nothing is lost", this::promoted);
        checks.check("atomic long: a number is replaced only if it is the expected one", this::compareAndSet);
        checks.check("cached numbers: nobody gets one twice", this::cached);
    }

    private ByteBuffer bytes(String path) throws Exception {
        return ByteBuffer.wrap(curator.getData().forPath(path));
    }

    private void sharedCount() throws Exception {
        String path = "/shared/count";
        try (SharedCount mine = new SharedCount(curator, path, 5)) {
            mine.start();
            rust.tell("read shared-count " + path, path + " is 5");
            rust.tell("follow shared-count " + path + " 7");
            mine.setCount(7);
            rust.await(path + " became 7");

            rust.tell("write shared-count " + path + " -3", path + " written");
            Checks.eventually("Curator sees it", () -> mine.getCount() == -3);
            Checks.equal(ByteBuffer.wrap(new byte[] {-1, -1, -1, -3}), bytes(path));

            VersionedValue<Integer> seen = mine.getVersionedValue();
            rust.tell("swap shared-count " + path + " -3 9", path + " swapped");
            Checks.that(!mine.trySetCount(seen, 10), "Curator does not write upon what is not there any more");
            rust.tell("swap shared-count " + path + " -3 11", path + " kept");
            Checks.eventually("Curator sees it", () -> mine.getCount() == 9);
            Checks.that(mine.trySetCount(mine.getVersionedValue(), 12), "but upon what it sees");
            rust.tell("read shared-count " + path, path + " is 12");
        }
    }

    private void sharedValue() throws Exception {
        String path = "/shared/value";
        rust.tell("write shared-value " + path + " first", path + " written");
        try (SharedValue mine = new SharedValue(curator, path, "seed".getBytes(UTF_8))) {
            mine.start();
            Checks.equal("first", new String(mine.getValue(), UTF_8));
            rust.tell("follow shared-value " + path + " second");
            mine.setValue("second".getBytes(UTF_8));
            rust.await(path + " became second");
            rust.tell("swap shared-value " + path + " second third", path + " swapped");
            Checks.eventually("Curator sees it", () -> new String(mine.getValue(), UTF_8).equals("third"));
            Checks.equal(ByteBuffer.wrap("third".getBytes(UTF_8)), bytes(path));
        }
    }

    /** To a node that nobody has made before. */
    private <T extends Number> void addTogether(
            DistributedAtomicNumber<T> mine, T number, String kind, String path, int numberOfRust) throws Exception {
        rust.tell("add " + kind + " " + path + " " + numberOfRust + " " + TIMES);
        for (int i = 0; i < TIMES; i++) {
            Checks.that(mine.add(number).succeeded(), "Curator adds");
        }
        rust.await(path + " added");
        long sum = TIMES * (number.longValue() + numberOfRust);
        Checks.equal(sum, mine.get().postValue().longValue());
        rust.tell("read " + kind + " " + path, path + " is " + sum);
    }

    private void promoted() throws Exception {
        String path = "/atomic/promoted";
        PromotedToLock lock = PromotedToLock.builder()
                .lockPath(path + "-lock")
                .retryPolicy(new RetryForever(1))
                .timeout(Checks.PATIENCE_MS, TimeUnit.MILLISECONDS)
                .build();
        // No second try without the lock.
        DistributedAtomicLong mine = new DistributedAtomicLong(curator, path, new RetryNTimes(0, 0), lock);
        addTogether(mine, 3L, "promoted-long", path, 1);
    }

    private void compareAndSet() throws Exception {
        String path = "/atomic/compared";
        DistributedAtomicLong mine = new DistributedAtomicLong(curator, path, new RetryForever(1));
        rust.tell("write long " + path + " 9000000000", path + " written");
        Checks.that(mine.compareAndSet(9_000_000_000L, 1L).succeeded(), "Curator replaces what Rust wrote");
        rust.tell("swap long " + path + " 9000000000 2", path + " kept");
        rust.tell("swap long " + path + " 1 2", path + " swapped");
        AtomicValue<Long> refused = mine.compareAndSet(1L, 3L);
        Checks.that(!refused.succeeded(), "it is not 1 any more");
        Checks.equal(2L, refused.preValue());
    }

    private void cached() throws Exception {
        String longs = "/atomic/cached-long";
        CachedAtomicLong mine =
                new CachedAtomicLong(new DistributedAtomicLong(curator, longs, new RetryForever(1)), 10);
        handOutTogether(() -> mine.next().preValue().toString(), "long", longs);
        String integers = "/atomic/cached-integer";
        CachedAtomicInteger small =
                new CachedAtomicInteger(new DistributedAtomicInteger(curator, integers, new RetryForever(1)), 10);
        handOutTogether(() -> small.next().preValue().toString(), "integer", integers);
    }

    /** Both take 15 numbers from blocks of ten, so there are four blocks. */
    private void handOutTogether(Work<String> next, String kind, String path) throws Exception {
        rust.tell("next " + kind + " " + path + " 10 15");
        Future<List<String>> mine = inBackground(() -> {
            List<String> numbers = new ArrayList<>();
            for (int i = 0; i < 15; i++) {
                numbers.add(next.run());
            }
            return numbers;
        });
        List<String> all = new ArrayList<>(result(mine));
        all.addAll(Arrays.asList(rust.next(path + " handed out ").split(",")));
        Checks.equal(30, all.size());
        Checks.equal(30, new HashSet<>(all).size());
        rust.tell("read " + kind + " " + path, path + " is 40");
    }
}
