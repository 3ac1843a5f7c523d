import static java.nio.charset.StandardCharsets.UTF_8;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.Iterator;
import java.util.List;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.recipes.queue.BlockingQueueConsumer;
import org.apache.curator.framework.recipes.queue.DistributedDelayQueue;
import org.apache.curator.framework.recipes.queue.DistributedIdQueue;
import org.apache.curator.framework.recipes.queue.DistributedPriorityQueue;
import org.apache.curator.framework.recipes.queue.DistributedQueue;
import org.apache.curator.framework.recipes.queue.MultiItem;
import org.apache.curator.framework.recipes.queue.QueueBuilder;
import org.apache.curator.framework.recipes.queue.QueueConsumer;
import org.apache.curator.framework.recipes.queue.QueueSerializer;
import org.apache.curator.framework.recipes.queue.QueueSharder;
import org.apache.curator.framework.recipes.queue.QueueSharderPolicies;
import org.apache.curator.framework.recipes.queue.SimpleDistributedQueue;

/** Queues: what one side puts in the other takes out, once. */
final class CuratorQueues extends Meeting {
    private static final int ITEMS = 20;
    private static final String NO_LOCKS = "-";

    private static final QueueSerializer<String> TEXT = new QueueSerializer<String>() {
        @Override
        public byte[] serialize(String item) {
            return item.getBytes(UTF_8);
        }

        @Override
        public String deserialize(byte[] bytes) {
            return new String(bytes, UTF_8);
        }
    };

    CuratorQueues(Meeting meeting) {
        super(meeting);
    }

    void run(Checks checks) {
        checks.check("simple queue: items pass in both directions, in order", this::simple);
        checks.check("simple queue: both empty it, everything comes out once", this::simpleTogether);
        checks.check("work queue with locks: items pass in both directions", () -> work("/jobs/locked", "/jobs/locks"));
        checks.check("work queue without locks: items pass in both directions", () -> work("/jobs/plain", NO_LOCKS));
        checks.check("work queue with locks: both work, everything once", () -> {
            workTogether("/jobs/locked-together", "/jobs/locks-together");
        });
        checks.check("work queue without locks: both work, everything once", () -> {
            workTogether("/jobs/together", NO_LOCKS);
        });
        checks.check("work queue: Curator gets what Rust could not do", this::requeued);
        checks.check("id queue: ids pass in both directions, and remove", this::ids);
        checks.check("priority queue: both obey the other's priorities", this::priorities);
        checks.check("delay queue: nobody gets what is not due", this::delays);
        checks.check("sharded queue: both work on the shards of the other", this::sharded);
    }

    private void simple() throws Exception {
        String path = "/simple/both";
        SimpleDistributedQueue mine = new SimpleDistributedQueue(curator, path);
        mine.offer("a".getBytes(UTF_8));
        mine.offer("b".getBytes(UTF_8));
        rust.tell("offer " + path + " c d", path + " offered");
        Checks.equal(
                Arrays.asList("qn-0000000000", "qn-0000000001", "qn-0000000002", "qn-0000000003"), names(path));
        Checks.equal("c", new String(curator.getData().forPath(path + "/qn-0000000002"), UTF_8));
        rust.tell("poll r " + path, "r took a");
        Checks.equal("b", new String(mine.poll(), UTF_8));
        Checks.equal("c", new String(mine.poll(), UTF_8));
        rust.tell("poll r " + path, "r took d");
        rust.tell("poll r " + path, "r found nothing");

        rust.tell("await-item r " + path);
        awaitChildren(path + ".takers", 1);
        mine.offer("e".getBytes(UTF_8));
        rust.await("r took e");
        Future<byte[]> waiting = inBackground(() -> mine.poll(Checks.PATIENCE_MS, TimeUnit.MILLISECONDS));
        rust.tell("offer " + path + " f", path + " offered");
        Checks.equal("f", new String(result(waiting), UTF_8));
    }

    private void simpleTogether() throws Exception {
        String path = "/simple/together";
        SimpleDistributedQueue mine = new SimpleDistributedQueue(curator, path);
        List<String> put = new ArrayList<>();
        for (int i = 0; i < ITEMS; i++) {
            mine.offer(("java" + i).getBytes(UTF_8));
            rust.tell("offer " + path + " rust" + i, path + " offered");
            Collections.addAll(put, "java" + i, "rust" + i);
        }
        rust.tell("drain r " + path);
        List<String> taken = new ArrayList<>();
        for (byte[] item = mine.poll(); item != null; item = mine.poll()) {
            taken.add(new String(item, UTF_8));
        }
        sameItems(put, taken, rust.next("r took "));
    }

    private void work(String path, String locks) throws Exception {
        DistributedQueue<String> producer = builder(null, path, locks).buildQueue();
        producer.start();
        producer.put("alone");
        producer.putMulti(several("one", "two"));
        byte[] curators = curator.getData().forPath(path + "/queue-0000000001");
        rust.tell("put plain " + path + " - one,two", path + " put");
        // Byte by byte what Curator writes.
        byte[] ours = curator.getData().forPath(path + "/queue-0000000002");
        Checks.equal(ByteBuffer.wrap(curators), ByteBuffer.wrap(ours));

        rust.tell("work r plain " + path + " " + locks, "r has alone");
        if (!locks.equals(NO_LOCKS)) {
            Checks.equal(Arrays.asList("queue-0000000000"), names(locks));
        }
        rust.tell("release r", "r released");
        rust.tell("work r plain " + path + " " + locks, "r has one,two");
        rust.tell("release r", "r released");
        BlockingQueueConsumer<String> consumer = consumer();
        DistributedQueue<String> worker = builder(consumer, path, locks).buildQueue();
        worker.start();
        Checks.equal("one", take(consumer));
        Checks.equal("two", take(consumer));

        rust.tell("work r plain " + path + ".back " + locks);
        awaitChildren(path + ".back.takers", 1);
        DistributedQueue<String> back = builder(null, path + ".back", locks).buildQueue();
        back.start();
        back.put("late");
        rust.await("r has late");
        rust.tell("release r", "r released");
        awaitChildren(path, 0);
        back.close();
        worker.close();
        producer.close();
    }

    private void workTogether(String path, String locks) throws Exception {
        DistributedQueue<String> producer = builder(null, path, locks).buildQueue();
        producer.start();
        List<String> put = new ArrayList<>();
        for (int i = 0; i < ITEMS; i++) {
            producer.put("java" + i);
            rust.tell("put plain " + path + " - rust" + i, path + " put");
            Collections.addAll(put, "java" + i, "rust" + i);
        }
        BlockingQueueConsumer<String> consumer = consumer();
        DistributedQueue<String> worker = builder(consumer, path, locks).buildQueue();
        rust.tell("work-off r plain " + path + " " + locks);
        worker.start();
        String byRust = rust.next("r took ");
        awaitChildren(path, 0);
        // Without locks, what has left the queue may not be with the consumer yet.
        Checks.eventually("everything is taken", () -> consumer.size() + count(byRust) >= put.size());
        sameItems(put, consumer.getItems(), byRust);
        worker.close();
        producer.close();
    }

    private void requeued() throws Exception {
        String path = "/jobs/requeued";
        String locks = "/jobs/requeued-locks";
        rust.tell("put plain " + path + " - hard", path + " put");
        rust.tell("work r plain " + path + " " + locks, "r has hard");
        BlockingQueueConsumer<String> consumer = consumer();
        DistributedQueue<String> worker = builder(consumer, path, locks).buildQueue();
        worker.start();
        rust.tell("requeue r", "r requeued");
        Checks.equal("hard", take(consumer));
        awaitChildren(path, 0);
        worker.close();
    }

    private void ids() throws Exception {
        String path = "/jobs/ids";
        String locks = "/jobs/ids-locks";
        DistributedIdQueue<String> producer = builder(null, path, locks).buildIdQueue();
        producer.start();
        producer.put("from Java", "a/1");
        rust.tell("work r id " + path + " " + locks, "r has from Java");
        rust.tell("id-of r", "r is a_1");
        // With the id it had.
        rust.tell("requeue r", "r requeued");
        Checks.equal(Arrays.asList("queue-|a_1|0000000001"), names(path));
        rust.tell("remove-id " + path + " " + locks + " a_1", path + " lost 1");

        rust.tell("put id " + path + " b one", path + " put");
        rust.tell("put id " + path + " c two", path + " put");
        rust.tell("put id " + path + " b three", path + " put");
        Checks.equal(2, producer.remove("b"));
        BlockingQueueConsumer<String> consumer = consumer();
        DistributedIdQueue<String> worker = builder(consumer, path, locks).buildIdQueue();
        worker.start();
        Checks.equal("two", take(consumer));
        awaitChildren(path, 0);
        worker.close();
        producer.close();
    }

    private void priorities() throws Exception {
        String path = "/jobs/priorities";
        DistributedPriorityQueue<String> producer = builder(null, path, NO_LOCKS).buildPriorityQueue(0);
        producer.start();
        producer.put("last", 5);
        producer.put("first", -7);
        producer.put("second", 0);
        rust.tell("work-off r priority " + path + " -", "r took first,second,last");

        rust.tell("put priority " + path + " 2147483647 last", path + " put");
        rust.tell("put priority " + path + " -2147483648 first", path + " put");
        rust.tell("put priority " + path + " -1 second", path + " put");
        rust.tell("put priority " + path + " 16 third", path + " put");
        BlockingQueueConsumer<String> consumer = consumer();
        DistributedPriorityQueue<String> worker = builder(consumer, path, NO_LOCKS).buildPriorityQueue(0);
        worker.start();
        for (String wanted : Arrays.asList("first", "second", "third", "last")) {
            Checks.equal(wanted, take(consumer));
        }
        worker.close();
        producer.close();
    }

    private void delays() throws Exception {
        String path = "/jobs/delays";
        long inAnHour = System.currentTimeMillis() + TimeUnit.HOURS.toMillis(1);
        DistributedDelayQueue<String> producer = builder(null, path, NO_LOCKS).buildDelayQueue();
        producer.start();
        producer.put("later", inAnHour);
        producer.put("due", 1L);
        rust.tell("work r delay " + path + " -", "r has due");
        rust.tell("release r", "r released");
        rust.tell("look r delay " + path + " -", "r found nothing");

        rust.tell("put delay " + path + " " + inAnHour + " later", path + " put");
        List<String> waiting = names(path);
        Checks.equal(2, waiting.size());
        Checks.equal(withoutNumber(waiting.get(0)), withoutNumber(waiting.get(1)));
        rust.tell("put delay " + path + " 2 due", path + " put");
        BlockingQueueConsumer<String> consumer = consumer();
        DistributedDelayQueue<String> worker = builder(consumer, path, NO_LOCKS).buildDelayQueue();
        worker.start();
        Checks.equal("due", take(consumer));
        Checks.equal(waiting, names(path));
        worker.close();
        producer.close();
    }

    private void sharded() throws Exception {
        String path = "/jobs/sharded";
        rust.tell("put sharded " + path + " - one,two", path + " put");
        BlockingQueueConsumer<String> consumer = consumer();
        QueueSharder<String, DistributedQueue<String>> sharder = new QueueSharder<>(
                curator,
                (client, shard) -> builder(consumer, shard, NO_LOCKS).buildQueue(),
                path,
                "/jobs/sharded-leader",
                QueueSharderPolicies.builder().thresholdCheckMs(50).build());
        sharder.start();
        Checks.equal(1, sharder.getShardQty());
        Checks.equal("one", take(consumer));
        Checks.equal("two", take(consumer));
        sharder.close();

        QueueSharder<String, DistributedQueue<String>> producer = new QueueSharder<>(
                curator,
                (client, shard) -> builder(null, shard, NO_LOCKS).buildQueue(),
                path,
                "/jobs/sharded-leader",
                QueueSharderPolicies.builder().build());
        producer.start();
        producer.getQueue().put("three");
        rust.tell("work r sharded " + path + " -", "r has three");
        rust.tell("release r", "r released");
        producer.close();
    }

    private QueueBuilder<String> builder(QueueConsumer<String> consumer, String path, String locks) {
        QueueBuilder<String> builder =
                QueueBuilder.builder(curator, consumer, TEXT, path).putInBackground(false);
        return locks.equals(NO_LOCKS) ? builder : builder.lockPath(locks);
    }

    private static BlockingQueueConsumer<String> consumer() {
        return new BlockingQueueConsumer<>((client, state) -> {});
    }

    private static String take(BlockingQueueConsumer<String> consumer) throws InterruptedException {
        return consumer.take((int) Checks.PATIENCE_MS, TimeUnit.MILLISECONDS);
    }

    private List<String> names(String path) throws Exception {
        List<String> names = new ArrayList<>(curator.getChildren().forPath(path));
        Collections.sort(names);
        return names;
    }

    private static String withoutNumber(String name) {
        return name.substring(0, name.lastIndexOf('|'));
    }

    private static int count(String items) {
        return items.isEmpty() ? 0 : items.split(",").length;
    }

    private static void sameItems(List<String> put, List<String> byCurator, String byRust) {
        List<String> taken = new ArrayList<>(byCurator);
        if (!byRust.isEmpty()) {
            taken.addAll(Arrays.asList(byRust.split(",")));
        }
        Collections.sort(put);
        Collections.sort(taken);
        Checks.equal(put, taken);
    }

    private static MultiItem<String> several(String... items) {
        Iterator<String> left = Arrays.asList(items).iterator();
        return () -> left.hasNext() ? left.next() : null;
    }
}
