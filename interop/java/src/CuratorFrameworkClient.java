import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.api.ACLProvider;
import org.apache.curator.framework.api.CuratorEvent;
import org.apache.curator.framework.api.transaction.CuratorOp;
import org.apache.curator.framework.api.transaction.CuratorTransactionResult;
import org.apache.curator.framework.recipes.atomic.AtomicValue;
import org.apache.curator.framework.recipes.atomic.DistributedAtomicLong;
import org.apache.curator.framework.recipes.barriers.DistributedBarrier;
import org.apache.curator.framework.recipes.barriers.DistributedDoubleBarrier;
import org.apache.curator.framework.recipes.cache.ChildData;
import org.apache.curator.framework.recipes.cache.CuratorCache;
import org.apache.curator.framework.recipes.cache.CuratorCacheListener;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderSelector;
import org.apache.curator.framework.recipes.leader.LeaderSelectorListenerAdapter;
import org.apache.curator.framework.recipes.locks.InterProcessMultiLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreMutex;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.framework.recipes.nodes.GroupMember;
import org.apache.curator.framework.recipes.nodes.PersistentNode;
import org.apache.curator.framework.recipes.nodes.PersistentTtlNode;
import org.apache.curator.framework.recipes.queue.SimpleDistributedQueue;
import org.apache.curator.framework.recipes.shared.SharedCount;
import org.apache.curator.framework.recipes.watch.PersistentWatcher;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.RetryForever;
import org.apache.zookeeper.AddWatchMode;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.WatchedEvent;
import org.apache.zookeeper.Watcher;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.data.ACL;
import org.apache.zookeeper.data.Stat;

/**
 * Curator's framework and recipes against the server whose address is the first argument. A second one, {@code member},
 * says that the server is one of three.
 */
public final class CuratorFrameworkClient {
    private final String address;
    private final String members;
    private final Checks checks = new Checks();
    private final CuratorFramework client;

    public static void main(String[] args) throws Exception {
        CuratorFrameworkClient driver = new CuratorFrameworkClient(args[0], args.length > 1 ? args[1] : "");
        driver.framework();
        driver.watching();
        driver.locks();
        driver.leaders();
        driver.others();
        driver.restart();
        driver.checks.finish();
    }

    private CuratorFrameworkClient(String address, String members) throws Exception {
        this.address = address;
        this.members = members;
        this.client = start(builder());
    }

    private CuratorFrameworkFactory.Builder builder() {
        return CuratorFrameworkFactory.builder()
            .connectString(address)
            .sessionTimeoutMs(20_000)
            .connectionTimeoutMs(15_000)
            .retryPolicy(new RetryForever(100));
    }

    private static CuratorFramework start(CuratorFrameworkFactory.Builder builder) throws Exception {
        CuratorFramework framework = builder.build();
        framework.start();
        Checks.that(framework.blockUntilConnected(30, TimeUnit.SECONDS), "Curator connects");
        return framework;
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static String text(byte[] data) {
        return new String(data, StandardCharsets.UTF_8);
    }

    private static <T> T take(BlockingQueue<T> queue, String what) throws InterruptedException {
        T item = queue.poll(Checks.PATIENCE_MS, TimeUnit.MILLISECONDS);
        Checks.that(item != null, what);
        return item;
    }

    private void framework() {
        checks.check("create with parents, read, write, delete with children", () -> {
            client.create().creatingParentsIfNeeded().forPath("/f/a/b", bytes("x"));
            Stat stat = new Stat();
            Checks.equal("x", text(client.getData().storingStatIn(stat).forPath("/f/a/b")));
            Checks.equal(1, client.setData().withVersion(stat.getVersion()).forPath("/f/a/b", bytes("y")).getVersion());
            Checks.fails(KeeperException.BadVersionException.class,
                () -> client.setData().withVersion(7).forPath("/f/a/b", bytes("z")));
            Checks.equal("[b]", client.getChildren().forPath("/f/a").toString());
            client.delete().guaranteed().deletingChildrenIfNeeded().forPath("/f");
            Checks.equal(null, client.checkExists().forPath("/f"));
            Checks.fails(KeeperException.NoNodeException.class, () -> client.delete().forPath("/f"));
            client.delete().quietly().forPath("/f");
        });
        checks.check("parents as containers, children with a time to live", () -> {
            client.create().creatingParentContainersIfNeeded().forPath("/c/d/e");
            client.create().withTtl(3_600_000).withMode(CreateMode.PERSISTENT_WITH_TTL).forPath("/c/d/ttl");
            client.delete().forPath("/c/d/ttl");
            client.delete().forPath("/c/d/e");
            Checks.eventually("the empty containers go", () -> client.checkExists().forPath("/c") == null);
        });
        checks.check("protected creation finds its node", () -> {
            client.create().forPath("/p");
            String path = client.create().withProtection().withMode(CreateMode.EPHEMERAL_SEQUENTIAL).forPath("/p/n-");
            Checks.that(path.matches("/p/_c_[0-9a-f-]{36}-n-0000000000"), path);
            Stat stat = client.checkExists().forPath(path);
            Checks.equal(client.getZookeeperClient().getZooKeeper().getSessionId(), stat.getEphemeralOwner());
        });
        checks.check("idempotent create, set and delete", () -> {
            client.create().orSetData().forPath("/set", bytes("1"));
            client.create().orSetData().forPath("/set", bytes("2"));
            Checks.equal("2", text(client.getData().forPath("/set")));
            client.create().idempotent().forPath("/idem", bytes("1"));
            client.create().idempotent().forPath("/idem", bytes("1"));
            client.setData().idempotent().withVersion(0).forPath("/idem", bytes("2"));
            client.setData().idempotent().withVersion(0).forPath("/idem", bytes("2"));
            client.delete().idempotent().forPath("/idem");
            client.delete().idempotent().forPath("/idem");
        });
        checks.check("compressed data", () -> {
            String longText = String.join("", Collections.nCopies(1000, "ironkeeper "));
            client.create().compressed().forPath("/zip", bytes(longText));
            Checks.that(client.getData().undecompressed().forPath("/zip").length < 1000, "it is small on the server");
            Checks.equal(longText, text(client.getData().decompressed().forPath("/zip")));
        });
        checks.check("background operations", () -> {
            CompletableFuture<CuratorEvent> made = new CompletableFuture<>();
            client.create().inBackground((framework, event) -> made.complete(event)).forPath("/bg", bytes("x"));
            CuratorEvent event = made.get(Checks.PATIENCE_MS, TimeUnit.MILLISECONDS);
            Checks.equal(0, event.getResultCode());
            Checks.equal("/bg", event.getName());
            CompletableFuture<CuratorEvent> refused = new CompletableFuture<>();
            client.create().inBackground((framework, e) -> refused.complete(e)).forPath("/bg");
            Checks.equal(-110, refused.get(Checks.PATIENCE_MS, TimeUnit.MILLISECONDS).getResultCode());
            CompletableFuture<CuratorEvent> synced = new CompletableFuture<>();
            client.sync().inBackground((framework, e) -> synced.complete(e)).forPath("/bg");
            Checks.equal(0, synced.get(Checks.PATIENCE_MS, TimeUnit.MILLISECONDS).getResultCode());
        });
        checks.check("transactions", () -> {
            CuratorOp make = client.transactionOp().create().withMode(CreateMode.PERSISTENT).forPath("/tx", bytes("1"));
            CuratorOp write = client.transactionOp().setData().withVersion(0).forPath("/tx", bytes("2"));
            CuratorOp test = client.transactionOp().check().withVersion(1).forPath("/tx");
            List<CuratorTransactionResult> results = client.transaction().forOperations(make, write, test);
            Checks.equal(3, results.size());
            Checks.equal("/tx", results.get(0).getResultPath());
            Checks.equal(1, results.get(1).getResultStat().getVersion());
            CuratorOp drop = client.transactionOp().delete().forPath("/tx");
            CuratorOp wrong = client.transactionOp().check().withVersion(9).forPath("/");
            Checks.fails(KeeperException.BadVersionException.class, () -> client.transaction().forOperations(drop, wrong));
            Checks.that(client.checkExists().forPath("/tx") != null, "nothing of it happened");
        });
        checks.check("namespaces", () -> {
            CuratorFramework space = client.usingNamespace("space");
            space.create().creatingParentsIfNeeded().forPath("/a/b", bytes("inside"));
            Checks.equal("inside", text(client.getData().forPath("/space/a/b")));
            Checks.equal("[a]", space.getChildren().forPath("/").toString());
        });
        checks.check("access control", () -> {
            ACLProvider provider = new ACLProvider() {
                @Override
                public List<ACL> getDefaultAcl() {
                    return ZooDefs.Ids.CREATOR_ALL_ACL;
                }

                @Override
                public List<ACL> getAclForPath(String path) {
                    return ZooDefs.Ids.CREATOR_ALL_ACL;
                }
            };
            CuratorFramework owner =
                start(builder().authorization("digest", bytes("owner:secret")).aclProvider(provider));
            owner.create().creatingParentsIfNeeded().forPath("/owned/by", bytes("me"));
            Checks.fails(KeeperException.NoAuthException.class, () -> client.getData().forPath("/owned/by"));
            Checks.equal("digest", owner.getACL().forPath("/owned/by").get(0).getId().getScheme());
            owner.setACL().withACL(ZooDefs.Ids.OPEN_ACL_UNSAFE).forPath("/owned/by");
            Checks.equal("me", text(client.getData().forPath("/owned/by")));
            owner.close();
        });
        checks.check("the ensemble's configuration is readable", () -> {
            String config = text(client.getConfig().forEnsemble());
            // A server that is alone names nobody.
            if (members.isEmpty()) {
                Checks.equal("", config);
            } else {
                Checks.that(config.matches("(server\\.\\d+=[^\n]+\n){3}version=0"), config);
            }
        });
    }

    private void watching() {
        checks.check("watchers of one request, and persistent ones", () -> {
            client.create().forPath("/watch");
            BlockingQueue<WatchedEvent> events = new LinkedBlockingQueue<>();
            Watcher watcher = event -> {
                if (event.getType() != Watcher.Event.EventType.None) {
                    events.add(event);
                }
            };
            client.getData().usingWatcher(watcher).forPath("/watch");
            client.setData().forPath("/watch", bytes("1"));
            Checks.equal("/watch", take(events, "the one-shot watch fires").getPath());
            client.watchers().add().withMode(AddWatchMode.PERSISTENT_RECURSIVE).usingWatcher(watcher).forPath("/watch");
            client.create().forPath("/watch/a");
            client.setData().forPath("/watch/a", bytes("2"));
            Checks.equal(Watcher.Event.EventType.NodeCreated, take(events, "created").getType());
            Checks.equal(Watcher.Event.EventType.NodeDataChanged, take(events, "changed").getType());
            client.watchers().remove(watcher).forPath("/watch");
            Checks.equal(Watcher.Event.EventType.PersistentWatchRemoved, take(events, "removed").getType());
            client.setData().forPath("/watch/a", bytes("3"));
            client.checkExists().forPath("/watch");
            Checks.equal("[]", events.toString());
        });
        checks.check("a persistent watcher", () -> {
            BlockingQueue<WatchedEvent> events = new LinkedBlockingQueue<>();
            try (PersistentWatcher watcher = new PersistentWatcher(client, "/pw", true)) {
                watcher.getListenable().addListener(events::add);
                CountDownLatch ready = new CountDownLatch(1);
                watcher.getResetListenable().addListener(ready::countDown);
                watcher.start();
                Checks.that(ready.await(Checks.PATIENCE_MS, TimeUnit.MILLISECONDS), "the watch is set");
                client.create().creatingParentsIfNeeded().forPath("/pw/deep/down");
                Checks.equal("/pw", take(events, "first").getPath());
                Checks.equal("/pw/deep", take(events, "second").getPath());
                Checks.equal("/pw/deep/down", take(events, "third").getPath());
            }
        });
        checks.check("a cache follows its tree", () -> {
            client.create().creatingParentsIfNeeded().forPath("/cache/one", bytes("1"));
            BlockingQueue<String> changes = new LinkedBlockingQueue<>();
            CountDownLatch filled = new CountDownLatch(1);
            try (CuratorCache cache = CuratorCache.build(client, "/cache")) {
                cache.listenable().addListener(CuratorCacheListener.builder().forInitialized(filled::countDown).build());
                cache.start();
                Checks.that(filled.await(Checks.PATIENCE_MS, TimeUnit.MILLISECONDS), "the cache fills");
                cache.listenable().addListener((type, before, after) ->
                    changes.add(type + " " + (after == null ? before : after).getPath()));
                client.create().forPath("/cache/two", bytes("2"));
                Checks.equal("NODE_CREATED /cache/two", take(changes, "creation"));
                client.setData().forPath("/cache/one", bytes("11"));
                Checks.equal("NODE_CHANGED /cache/one", take(changes, "change"));
                client.delete().forPath("/cache/two");
                Checks.equal("NODE_DELETED /cache/two", take(changes, "deletion"));
                Checks.equal("11", cache.get("/cache/one").map(ChildData::getData).map(CuratorFrameworkClient::text).orElse(null));
                Checks.equal(2, cache.size());
            }
        });
    }

    private void locks() {
        checks.check("a mutex admits one at a time", () -> {
            AtomicInteger inside = new AtomicInteger();
            AtomicInteger turns = new AtomicInteger();
            ExecutorService pool = Executors.newFixedThreadPool(8);
            List<Future<?>> workers = new ArrayList<>();
            for (int i = 0; i < 8; i++) {
                workers.add(pool.submit(() -> {
                    InterProcessMutex mutex = new InterProcessMutex(client, "/locks/mutex");
                    for (int turn = 0; turn < 5; turn++) {
                        Checks.that(mutex.acquire(Checks.PATIENCE_MS, TimeUnit.MILLISECONDS), "the lock is had");
                        Checks.equal(1, inside.incrementAndGet());
                        turns.incrementAndGet();
                        inside.decrementAndGet();
                        mutex.release();
                    }
                    return null;
                }));
            }
            for (Future<?> worker : workers) {
                worker.get();
            }
            pool.shutdown();
            Checks.equal(40, turns.get());
        });
        checks.check("readers share, a writer is alone", () -> {
            InterProcessReadWriteLock one = new InterProcessReadWriteLock(client, "/locks/rw");
            CuratorFramework second = start(builder());
            InterProcessReadWriteLock two = new InterProcessReadWriteLock(second, "/locks/rw");
            one.readLock().acquire();
            Checks.that(two.readLock().acquire(Checks.PATIENCE_MS, TimeUnit.MILLISECONDS), "two readers");
            Checks.that(!two.writeLock().acquire(100, TimeUnit.MILLISECONDS), "no writer beside readers");
            two.readLock().release();
            one.readLock().release();
            Checks.that(two.writeLock().acquire(Checks.PATIENCE_MS, TimeUnit.MILLISECONDS), "then a writer");
            Checks.that(!one.readLock().acquire(100, TimeUnit.MILLISECONDS), "no reader beside it");
            two.writeLock().release();
            second.close();
        });
        checks.check("a lock goes with its session", () -> {
            CuratorFramework second = start(builder());
            new InterProcessMutex(second, "/locks/session").acquire();
            InterProcessMutex mine = new InterProcessMutex(client, "/locks/session");
            Checks.that(!mine.acquire(100, TimeUnit.MILLISECONDS), "it is taken");
            second.close();
            Checks.that(mine.acquire(Checks.PATIENCE_MS, TimeUnit.MILLISECONDS), "it is free");
            mine.release();
        });
        checks.check("semaphores and locks of several", () -> {
            InterProcessSemaphoreV2 semaphore = new InterProcessSemaphoreV2(client, "/locks/sem", 2);
            Collection<Lease> both = semaphore.acquire(2);
            Checks.equal(null, semaphore.acquire(100, TimeUnit.MILLISECONDS));
            semaphore.returnAll(both);
            Lease one = semaphore.acquire(Checks.PATIENCE_MS, TimeUnit.MILLISECONDS);
            Checks.that(one != null, "a lease is free again");
            semaphore.returnLease(one);
            InterProcessMultiLock multi = new InterProcessMultiLock(Arrays.asList(
                new InterProcessMutex(client, "/locks/m1"), new InterProcessSemaphoreMutex(client, "/locks/m2")));
            multi.acquire();
            multi.release();
        });
    }

    private void leaders() {
        checks.check("a latch passes leadership on", () -> {
            CuratorFramework second = start(builder());
            LeaderLatch first = new LeaderLatch(second, "/latch", "first");
            first.start();
            first.await();
            LeaderLatch next = new LeaderLatch(client, "/latch", "next");
            next.start();
            Checks.eventually("both take part", () -> next.getParticipants().size() == 2);
            Checks.equal("first", next.getLeader().getId());
            second.close();
            Checks.that(next.await(Checks.PATIENCE_MS, TimeUnit.MILLISECONDS), "the next one leads");
            next.close();
        });
        checks.check("a selector gives everybody a turn", () -> {
            BlockingQueue<String> turns = new LinkedBlockingQueue<>();
            List<LeaderSelector> selectors = new ArrayList<>();
            for (String name : Arrays.asList("a", "b", "c")) {
                LeaderSelector selector = new LeaderSelector(client, "/selector", new LeaderSelectorListenerAdapter() {
                    @Override
                    public void takeLeadership(CuratorFramework framework) {
                        turns.add(name);
                    }
                });
                selector.start();
                selectors.add(selector);
            }
            Set<String> seen = new TreeSet<>();
            for (int i = 0; i < 3; i++) {
                seen.add(take(turns, "somebody leads"));
            }
            Checks.equal("[a, b, c]", seen.toString());
            selectors.forEach(LeaderSelector::close);
        });
    }

    private void others() {
        checks.check("a counter many add to", () -> {
            ExecutorService pool = Executors.newFixedThreadPool(4);
            List<Future<?>> workers = new ArrayList<>();
            for (int i = 0; i < 4; i++) {
                workers.add(pool.submit(() -> {
                    DistributedAtomicLong counter = new DistributedAtomicLong(client, "/atomic", new RetryForever(1));
                    for (int n = 0; n < 10; n++) {
                        AtomicValue<Long> value = counter.increment();
                        Checks.that(value.succeeded(), "the addition succeeds");
                    }
                    return null;
                }));
            }
            for (Future<?> worker : workers) {
                worker.get();
            }
            pool.shutdown();
            Checks.equal(40L, new DistributedAtomicLong(client, "/atomic", new RetryForever(1)).get().postValue());
        });
        checks.check("a shared count is seen by the other side", () -> {
            CuratorFramework second = start(builder());
            try (SharedCount mine = new SharedCount(client, "/count", 0);
                SharedCount theirs = new SharedCount(second, "/count", 0)) {
                mine.start();
                theirs.start();
                mine.setCount(7);
                Checks.eventually("the count arrives", () -> theirs.getCount() == 7);
                Checks.that(theirs.trySetCount(theirs.getVersionedValue(), 8), "a fresh version wins");
            }
            second.close();
        });
        checks.check("barriers", () -> {
            DistributedBarrier barrier = new DistributedBarrier(client, "/barrier");
            barrier.setBarrier();
            CompletableFuture<Boolean> passed = CompletableFuture.supplyAsync(() -> {
                try {
                    return new DistributedBarrier(client, "/barrier").waitOnBarrier(30, TimeUnit.SECONDS);
                } catch (Exception e) {
                    throw new IllegalStateException(e);
                }
            });
            barrier.removeBarrier();
            Checks.equal(true, passed.get());
            ExecutorService pool = Executors.newFixedThreadPool(3);
            List<Future<Boolean>> members = new ArrayList<>();
            for (int i = 0; i < 3; i++) {
                members.add(pool.submit(() -> {
                    DistributedDoubleBarrier both = new DistributedDoubleBarrier(client, "/double", 3);
                    return both.enter(30, TimeUnit.SECONDS) && both.leave(30, TimeUnit.SECONDS);
                }));
            }
            for (Future<Boolean> member : members) {
                Checks.equal(true, member.get());
            }
            pool.shutdown();
        });
        checks.check("a queue keeps its order", () -> {
            SimpleDistributedQueue queue = new SimpleDistributedQueue(client, "/queue");
            for (int i = 0; i < 5; i++) {
                queue.offer(bytes("item " + i));
            }
            for (int i = 0; i < 5; i++) {
                Checks.equal("item " + i, text(queue.take()));
            }
            Checks.equal(null, queue.poll());
        });
        checks.check("group membership, kept nodes and nodes with a time to live", () -> {
            try (GroupMember member = new GroupMember(client, "/group", "me", bytes("here"))) {
                member.start();
                Checks.eventually("the member is listed", () -> {
                    Map<String, byte[]> members = member.getCurrentMembers();
                    return members.containsKey("me") && client.checkExists().forPath("/group/me") != null;
                });
            }
            try (PersistentNode node = new PersistentNode(client, CreateMode.EPHEMERAL, false, "/kept", bytes("1"))) {
                node.start();
                Checks.that(node.waitForInitialCreate(30, TimeUnit.SECONDS), "the node is made");
                long first = client.checkExists().forPath("/kept").getCzxid();
                client.delete().forPath("/kept");
                Checks.eventually("it comes back", () -> {
                    Stat stat = client.checkExists().forPath("/kept");
                    return stat != null && stat.getCzxid() > first;
                });
            }
            try (PersistentTtlNode node = new PersistentTtlNode(client, "/kept-ttl", 5_000, bytes("1"))) {
                node.start();
                Checks.that(node.waitForInitialCreate(30, TimeUnit.SECONDS), "the node is made");
            }
        });
    }

    private void restart() {
        checks.check("a restart suspends and then continues everything", () -> {
            BlockingQueue<ConnectionState> states = new LinkedBlockingQueue<>();
            client.getConnectionStateListenable().addListener((framework, state) -> states.add(state));
            client.create().withMode(CreateMode.EPHEMERAL).forPath("/still-here", bytes("x"));
            InterProcessMutex mutex = new InterProcessMutex(client, "/locks/restart");
            mutex.acquire();
            BlockingQueue<String> changes = new LinkedBlockingQueue<>();
            CountDownLatch filled = new CountDownLatch(1);
            try (CuratorCache cache = CuratorCache.build(client, "/cache")) {
                cache.listenable().addListener(CuratorCacheListener.builder().forInitialized(filled::countDown).build());
                cache.start();
                Checks.that(filled.await(Checks.PATIENCE_MS, TimeUnit.MILLISECONDS), "the cache fills");
                cache.listenable().addListener((type, before, after) ->
                    changes.add(type + " " + (after == null ? before : after).getPath()));
                Checks.restartServer();
                Checks.equal(ConnectionState.SUSPENDED, take(states, "suspended"));
                Checks.equal(ConnectionState.RECONNECTED, take(states, "reconnected"));
                Checks.that(client.checkExists().forPath("/still-here") != null, "the ephemeral survives");
                Checks.that(mutex.isOwnedByCurrentThread(), "the lock is still held");
                mutex.release();
                client.create().forPath("/cache/after", bytes("x"));
                Checks.equal("NODE_CREATED /cache/after", take(changes, "the cache follows again"));
            }
            client.close();
        });
    }
}
