import static org.apache.zookeeper.CreateMode.CONTAINER;
import static org.apache.zookeeper.CreateMode.EPHEMERAL;
import static org.apache.zookeeper.CreateMode.EPHEMERAL_SEQUENTIAL;
import static org.apache.zookeeper.CreateMode.PERSISTENT;
import static org.apache.zookeeper.CreateMode.PERSISTENT_SEQUENTIAL;
import static org.apache.zookeeper.CreateMode.PERSISTENT_SEQUENTIAL_WITH_TTL;
import static org.apache.zookeeper.CreateMode.PERSISTENT_WITH_TTL;
import static org.apache.zookeeper.ZooDefs.Ids.CREATOR_ALL_ACL;
import static org.apache.zookeeper.ZooDefs.Ids.OPEN_ACL_UNSAFE;
import static org.apache.zookeeper.ZooDefs.Ids.READ_ACL_UNSAFE;

import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.zookeeper.AddWatchMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.Op;
import org.apache.zookeeper.OpResult;
import org.apache.zookeeper.WatchedEvent;
import org.apache.zookeeper.Watcher;
import org.apache.zookeeper.Watcher.Event.EventType;
import org.apache.zookeeper.Watcher.Event.KeeperState;
import org.apache.zookeeper.Watcher.WatcherType;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.admin.ZooKeeperAdmin;
import org.apache.zookeeper.client.FourLetterWordMain;
import org.apache.zookeeper.data.ACL;
import org.apache.zookeeper.data.ClientInfo;
import org.apache.zookeeper.data.Id;
import org.apache.zookeeper.data.Stat;
import org.apache.zookeeper.server.auth.DigestAuthenticationProvider;

/** Apache's Java client against the server whose address is the first argument. */
public final class JavaClient {
    private static final int TIMEOUT_MS = 30_000;

    private final String address;
    private final Checks checks = new Checks();
    private final ZooKeeper zk;

    public static void main(String[] args) throws Exception {
        JavaClient client = new JavaClient(args[0]);
        client.nodes();
        client.transactions();
        client.watches();
        client.permissions();
        client.sessions();
        client.server();
        client.checks.finish();
    }

    private JavaClient(String address) throws Exception {
        this.address = address;
        this.zk = connect("", TIMEOUT_MS);
    }

    /** Collects events in the order they arrive. */
    private static final class Events implements Watcher {
        private final BlockingQueue<WatchedEvent> queue = new LinkedBlockingQueue<>();

        @Override
        public void process(WatchedEvent event) {
            queue.add(event);
        }

        /** The next event about a node has to be this one. */
        void expect(EventType type, String path) throws InterruptedException {
            WatchedEvent event;
            do {
                event = queue.poll(Checks.PATIENCE_MS, TimeUnit.MILLISECONDS);
                Checks.that(event != null, "an event " + type + " " + path + " arrives");
            } while (event.getType() == EventType.None);
            Checks.equal(type + " " + path, event.getType() + " " + event.getPath());
        }

        void expectState(KeeperState state) throws InterruptedException {
            WatchedEvent event;
            do {
                event = queue.poll(Checks.PATIENCE_MS, TimeUnit.MILLISECONDS);
                Checks.that(event != null, "the state " + state + " is reached");
            } while (event.getState() != state);
        }

        void expectNothing() {
            queue.removeIf(event -> event.getType() == EventType.None);
            Checks.equal("[]", queue.toString());
        }
    }

    private ZooKeeper connect(String chroot, int timeoutMs) throws Exception {
        Events events = new Events();
        ZooKeeper client = new ZooKeeper(address + chroot, timeoutMs, events);
        events.expectState(KeeperState.SyncConnected);
        return client;
    }

    private String create(String path, String data) throws Exception {
        return zk.create(path, bytes(data), OPEN_ACL_UNSAFE, PERSISTENT);
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static String text(byte[] data) {
        return data == null ? null : new String(data, StandardCharsets.UTF_8);
    }

    private static List<String> sorted(List<String> names) {
        List<String> copy = new ArrayList<>(names);
        Collections.sort(copy);
        return copy;
    }

    private void nodes() {
        checks.check("a session has an id and a password", () -> {
            Checks.that(zk.getSessionId() != 0, "the id is set");
            Checks.equal(16, zk.getSessionPasswd().length);
            Checks.equal(TIMEOUT_MS, zk.getSessionTimeout());
        });
        checks.check("create, read, write and delete with exact stats", () -> {
            Stat made = new Stat();
            Checks.equal("/n", zk.create("/n", bytes("one"), OPEN_ACL_UNSAFE, PERSISTENT, made));
            Checks.equal(made.getCzxid(), made.getMzxid());
            Checks.equal(made.getCzxid(), made.getPzxid());
            Checks.equal(3, made.getDataLength());
            Stat read = new Stat();
            Checks.equal("one", text(zk.getData("/n", false, read)));
            Checks.equal(made, read);
            Stat written = zk.setData("/n", bytes("longer"), 0);
            Checks.equal(1, written.getVersion());
            Checks.that(written.getMzxid() > made.getMzxid(), "mzxid grows");
            Checks.equal(written, zk.exists("/n", false));
            zk.delete("/n", 1);
            Checks.equal(null, zk.exists("/n", false));
        });
        checks.check("null, empty and binary data are told apart", () -> {
            zk.create("/null", null, OPEN_ACL_UNSAFE, PERSISTENT);
            Checks.equal(null, zk.getData("/null", false, null));
            zk.setData("/null", new byte[0], -1);
            Checks.equal(0, zk.getData("/null", false, null).length);
            byte[] binary = {0, -1, 127, -128, 10};
            zk.setData("/null", binary, -1);
            Checks.that(Arrays.equals(binary, zk.getData("/null", false, null)), "bytes come back");
        });
        checks.check("unicode paths and data", () -> {
            create("/gr\u00fc\u00dfe-\u4f60\u597d", "\u00e4\u6f22\ud83d\ude00");
            Checks.equal("\u00e4\u6f22\ud83d\ude00", text(zk.getData("/gr\u00fc\u00dfe-\u4f60\u597d", false, null)));
            Checks.that(zk.getChildren("/", false).contains("gr\u00fc\u00dfe-\u4f60\u597d"), "it is listed");
        });
        checks.check("every create mode", () -> {
            create("/modes", "");
            for (org.apache.zookeeper.CreateMode mode : org.apache.zookeeper.CreateMode.values()) {
                Stat stat = new Stat();
                String wanted = "/modes/" + mode.name() + "-";
                String path = mode.isTTL()
                    ? zk.create(wanted, null, OPEN_ACL_UNSAFE, mode, stat, 3_600_000)
                    : zk.create(wanted, null, OPEN_ACL_UNSAFE, mode, stat);
                Checks.equal(mode.isSequential(), path.matches(".*-\\d{10}"));
                Checks.equal(mode.isEphemeral() ? zk.getSessionId() : 0L, stat.getEphemeralOwner());
            }
            Checks.equal(7, zk.exists("/modes", false).getNumChildren());
        });
        checks.check("sequence numbers count creations", () -> {
            create("/seq", "");
            for (int i = 0; i < 3; i++) {
                Checks.equal(String.format("/seq/n-%010d", i),
                    zk.create("/seq/n-", null, OPEN_ACL_UNSAFE, PERSISTENT_SEQUENTIAL));
            }
            zk.delete("/seq/n-0000000001", -1);
            Checks.equal("/seq/n-0000000003", zk.create("/seq/n-", null, OPEN_ACL_UNSAFE, EPHEMERAL_SEQUENTIAL));
            Checks.equal("/seq/0000000004", zk.create("/seq/", null, OPEN_ACL_UNSAFE, PERSISTENT_SEQUENTIAL));
        });
        checks.check("children with the parent's stat", () -> {
            create("/family", "");
            create("/family/b", "");
            create("/family/a", "");
            Stat stat = new Stat();
            Checks.equal("[a, b]", sorted(zk.getChildren("/family", false, stat)).toString());
            Checks.equal(2, stat.getNumChildren());
            Checks.equal(2, stat.getCversion());
            zk.delete("/family/b", -1);
            Checks.equal(3, zk.exists("/family", false).getCversion());
            Checks.equal(zk.exists("/family", false), statFromChildren("/family"));
            Checks.equal(1, zk.getAllChildrenNumber("/family"));
        });
        checks.check("each refusal has its own exception", () -> {
            Checks.fails(KeeperException.NoNodeException.class, () -> zk.getData("/nothing", false, null));
            Checks.fails(KeeperException.NoNodeException.class, () -> create("/nothing/below", ""));
            Checks.fails(KeeperException.NodeExistsException.class, () -> create("/family", ""));
            Checks.fails(KeeperException.NotEmptyException.class, () -> zk.delete("/family", -1));
            Checks.fails(KeeperException.BadVersionException.class, () -> zk.setData("/family", null, 7));
            Checks.fails(KeeperException.BadVersionException.class, () -> zk.delete("/family/a", 7));
            zk.create("/brief", null, OPEN_ACL_UNSAFE, EPHEMERAL);
            Checks.fails(KeeperException.NoChildrenForEphemeralsException.class, () -> create("/brief/below", ""));
            Checks.fails(KeeperException.InvalidACLException.class,
                () -> zk.create("/acl", null, Collections.emptyList(), PERSISTENT));
            Checks.fails(KeeperException.BadArgumentsException.class, () -> zk.delete("/zookeeper", -1));
            Checks.fails(IllegalArgumentException.class, () -> create("no/slash", ""));
            KeeperException e =
                Checks.fails(KeeperException.NoNodeException.class, () -> zk.getACL("/nothing", null));
            Checks.equal("/nothing", e.getPath());
        });
        checks.check("a thousand requests in flight are answered in order", () -> {
            create("/pipe", "");
            List<String> names = Collections.synchronizedList(new ArrayList<>());
            CountDownLatch left = new CountDownLatch(1000);
            for (int i = 0; i < 1000; i++) {
                zk.create("/pipe/n-", null, OPEN_ACL_UNSAFE, PERSISTENT_SEQUENTIAL, (rc, path, ctx, name) -> {
                    names.add(name);
                    left.countDown();
                }, null);
            }
            Checks.that(left.await(Checks.PATIENCE_MS, TimeUnit.MILLISECONDS), "all replies arrive");
            Checks.equal(sorted(names), new ArrayList<>(names));
            Checks.equal(1000, zk.getChildren("/pipe", false).size());
        });
        checks.check("a read after an own write in flight sees it", () -> {
            create("/own", "");
            for (int i = 0; i < 100; i++) {
                CompletableFuture<String> seen = new CompletableFuture<>();
                zk.setData("/own", bytes("v" + i), -1, (rc, path, ctx, stat) -> { }, null);
                zk.getData("/own", false, (rc, path, ctx, data, stat) -> seen.complete(text(data)), null);
                Checks.equal("v" + i, seen.get(Checks.PATIENCE_MS, TimeUnit.MILLISECONDS));
            }
        });
        checks.check("a node close to the size limit, and one beyond it", () -> {
            byte[] large = new byte[1_048_000];
            Arrays.fill(large, (byte) 'x');
            zk.create("/large", large, OPEN_ACL_UNSAFE, PERSISTENT);
            zk.delete("/large", -1);
            ZooKeeper other = connect("", TIMEOUT_MS);
            Checks.fails(KeeperException.ConnectionLossException.class,
                () -> other.create("/larger", new byte[1_100_000], OPEN_ACL_UNSAFE, PERSISTENT));
            other.close();
        });
        checks.check("an empty container goes, one that never had a child stays", () -> {
            zk.create("/box", null, OPEN_ACL_UNSAFE, CONTAINER);
            zk.create("/box/child", null, OPEN_ACL_UNSAFE, PERSISTENT);
            zk.create("/fresh", null, OPEN_ACL_UNSAFE, CONTAINER);
            Events events = new Events();
            zk.exists("/box", events);
            zk.delete("/box/child", -1);
            events.expect(EventType.NodeDeleted, "/box");
            Checks.that(zk.exists("/fresh", false) != null, "a container without a past stays");
        });
        checks.check("a node with a time to live goes when it is over", () -> {
            String path = zk.create("/brief-", null, OPEN_ACL_UNSAFE, PERSISTENT_SEQUENTIAL_WITH_TTL, new Stat(), 1);
            Checks.eventually(path + " is gone", () -> zk.exists(path, false) == null);
            Checks.fails(IllegalArgumentException.class,
                () -> zk.create("/zero", null, OPEN_ACL_UNSAFE, PERSISTENT_WITH_TTL, new Stat(), 0));
        });
        checks.check("ephemerals of the session are listed", () -> {
            List<String> mine = zk.getEphemerals();
            Checks.that(mine.contains("/brief") && mine.contains("/seq/n-0000000003"), "both are in " + mine);
            Checks.equal("[/seq/n-0000000003]", zk.getEphemerals("/seq").toString());
        });
        checks.check("chroot", () -> {
            create("/top", "");
            ZooKeeper below = connect("/top", TIMEOUT_MS);
            Checks.equal("/a", below.create("/a", bytes("x"), OPEN_ACL_UNSAFE, PERSISTENT));
            Checks.equal("x", text(zk.getData("/top/a", false, null)));
            Checks.equal("[a]", below.getChildren("/", false).toString());
            Events events = new Events();
            below.exists("/a", events);
            zk.delete("/top/a", -1);
            events.expect(EventType.NodeDeleted, "/a");
            below.close();
        });
    }

    private Stat statFromChildren(String path) throws Exception {
        Stat stat = new Stat();
        zk.getChildren(path, false, stat);
        return stat;
    }

    private void transactions() {
        checks.check("a transaction does all of its parts", () -> {
            create("/t", "");
            List<OpResult> results = zk.multi(Arrays.asList(
                Op.check("/t", 0),
                Op.create("/t/a", bytes("1"), OPEN_ACL_UNSAFE, PERSISTENT),
                Op.create("/t/s-", null, OPEN_ACL_UNSAFE, PERSISTENT_SEQUENTIAL),
                Op.create("/t/ttl", null, OPEN_ACL_UNSAFE, PERSISTENT_WITH_TTL, 3_600_000),
                Op.create("/t/box", null, OPEN_ACL_UNSAFE, CONTAINER),
                Op.setData("/t/a", bytes("2"), 0),
                Op.delete("/t/a", 1),
                Op.create("/t/e", null, OPEN_ACL_UNSAFE, EPHEMERAL)));
            Checks.equal(8, results.size());
            Checks.equal("/t/s-0000000001", ((OpResult.CreateResult) results.get(2)).getPath());
            Checks.equal(1, ((OpResult.SetDataResult) results.get(5)).getStat().getVersion());
            Checks.equal("[box, e, s-0000000001, ttl]", sorted(zk.getChildren("/t", false)).toString());
        });
        checks.check("a transaction that fails does none of its parts", () -> {
            KeeperException e = Checks.fails(KeeperException.NoNodeException.class, () -> zk.multi(Arrays.asList(
                Op.create("/t/x", null, OPEN_ACL_UNSAFE, PERSISTENT),
                Op.delete("/t/nothing", -1),
                Op.setData("/t", bytes("never"), -1))));
            List<OpResult> results = e.getResults();
            Checks.equal(3, results.size());
            Checks.equal(0, ((OpResult.ErrorResult) results.get(0)).getErr());
            Checks.equal(-101, ((OpResult.ErrorResult) results.get(1)).getErr());
            Checks.equal(-2, ((OpResult.ErrorResult) results.get(2)).getErr());
            Checks.equal(null, zk.exists("/t/x", false));
            Checks.fails(KeeperException.BadVersionException.class,
                () -> zk.multi(Collections.singletonList(Op.check("/t", 9))));
        });
        checks.check("the builder commits the same way", () -> {
            List<OpResult> results = zk.transaction()
                .create("/t/y", bytes("y"), OPEN_ACL_UNSAFE, PERSISTENT)
                .check("/t/y", 0)
                .delete("/t/y", 0)
                .commit();
            Checks.equal(3, results.size());
        });
        checks.check("many reads in one request", () -> {
            List<OpResult> results = zk.multi(Arrays.asList(
                Op.getData("/t"), Op.getChildren("/t"), Op.getData("/t/nothing")));
            Checks.equal("", text(((OpResult.GetDataResult) results.get(0)).getData()));
            Checks.equal(4, ((OpResult.GetChildrenResult) results.get(1)).getChildren().size());
            Checks.equal(-101, ((OpResult.ErrorResult) results.get(2)).getErr());
        });
    }

    private void watches() {
        checks.check("one-shot watches fire once, in order, before newer data is read", () -> {
            create("/w", "0");
            Events events = new Events();
            zk.getData("/w", events, null);
            zk.getChildren("/w", events);
            zk.exists("/w/c", events);
            ZooKeeper other = connect("", TIMEOUT_MS);
            other.setData("/w", bytes("1"), -1);
            other.create("/w/c", null, OPEN_ACL_UNSAFE, PERSISTENT);
            other.setData("/w", bytes("2"), -1);
            other.close();
            zk.sync("/w", (rc, path, ctx) -> { }, null);
            Checks.equal("2", text(zk.getData("/w", false, null)));
            events.expect(EventType.NodeDataChanged, "/w");
            events.expect(EventType.NodeCreated, "/w/c");
            events.expect(EventType.NodeChildrenChanged, "/w");
            events.expectNothing();
        });
        checks.check("deletion tells data, exists and child watches", () -> {
            Events data = new Events();
            Events exists = new Events();
            Events children = new Events();
            Events parent = new Events();
            zk.getData("/w/c", data, null);
            zk.exists("/w/c", exists);
            zk.getChildren("/w/c", children);
            zk.getChildren("/w", parent);
            zk.delete("/w/c", -1);
            data.expect(EventType.NodeDeleted, "/w/c");
            exists.expect(EventType.NodeDeleted, "/w/c");
            children.expect(EventType.NodeDeleted, "/w/c");
            parent.expect(EventType.NodeChildrenChanged, "/w");
        });
        checks.check("a persistent watch stays", () -> {
            Events events = new Events();
            zk.addWatch("/w", events, AddWatchMode.PERSISTENT);
            for (int i = 0; i < 3; i++) {
                zk.setData("/w", null, -1);
                events.expect(EventType.NodeDataChanged, "/w");
            }
            create("/w/p", "");
            events.expect(EventType.NodeChildrenChanged, "/w");
            zk.setData("/w/p", null, -1);
            zk.delete("/w/p", -1);
            events.expect(EventType.NodeChildrenChanged, "/w");
            zk.removeWatches("/w", events, WatcherType.Any, false);
            events.expect(EventType.PersistentWatchRemoved, "/w");
            zk.setData("/w", null, -1);
            zk.sync("/w", (rc, path, ctx) -> { }, null);
            zk.exists("/w", false);
            events.expectNothing();
        });
        checks.check("a recursive watch sees the whole tree", () -> {
            Events events = new Events();
            zk.addWatch("/r", events, AddWatchMode.PERSISTENT_RECURSIVE);
            create("/r", "");
            create("/r/a", "");
            create("/r/a/b", "");
            zk.setData("/r/a/b", bytes("x"), -1);
            zk.delete("/r/a/b", -1);
            zk.setACL("/r/a", OPEN_ACL_UNSAFE, -1);
            zk.delete("/r/a", -1);
            events.expect(EventType.NodeCreated, "/r");
            events.expect(EventType.NodeCreated, "/r/a");
            events.expect(EventType.NodeCreated, "/r/a/b");
            events.expect(EventType.NodeDataChanged, "/r/a/b");
            events.expect(EventType.NodeDeleted, "/r/a/b");
            events.expect(EventType.NodeDeleted, "/r/a");
            zk.removeAllWatches("/r", WatcherType.Any, false);
            events.expect(EventType.PersistentWatchRemoved, "/r");
        });
        checks.check("watches of one kind can be removed", () -> {
            Events data = new Events();
            Events children = new Events();
            zk.getData("/w", data, null);
            zk.getChildren("/w", children);
            zk.removeWatches("/w", children, WatcherType.Children, false);
            children.expect(EventType.ChildWatchRemoved, "/w");
            create("/w/late", "");
            zk.setData("/w", null, -1);
            data.expect(EventType.NodeDataChanged, "/w");
            children.expectNothing();
            Checks.fails(KeeperException.NoWatcherException.class,
                () -> zk.removeAllWatches("/w", WatcherType.Any, false));
        });
        checks.check("an event of an unreadable node is kept back", () -> {
            zk.create("/hidden", null, Collections.singletonList(
                new ACL(ZooDefs.Perms.ALL & ~ZooDefs.Perms.READ, ZooDefs.Ids.ANYONE_ID_UNSAFE)), PERSISTENT);
            Events events = new Events();
            zk.addWatch("/hidden", events, AddWatchMode.PERSISTENT);
            zk.setData("/hidden", bytes("x"), -1);
            zk.setACL("/hidden", OPEN_ACL_UNSAFE, -1);
            zk.setData("/hidden", bytes("y"), -1);
            events.expect(EventType.NodeDataChanged, "/hidden");
            events.expectNothing();
        });
    }

    private void permissions() {
        checks.check("digest: only the creator", () -> {
            ZooKeeper alice = connect("", TIMEOUT_MS);
            Checks.fails(KeeperException.InvalidACLException.class,
                () -> alice.create("/alice", null, CREATOR_ALL_ACL, PERSISTENT));
            alice.addAuthInfo("digest", bytes("alice:secret"));
            alice.create("/alice", bytes("hers"), CREATOR_ALL_ACL, PERSISTENT);
            Checks.fails(KeeperException.NoAuthException.class, () -> zk.getData("/alice", false, null));
            Checks.fails(KeeperException.NoAuthException.class, () -> zk.setData("/alice", null, -1));
            Checks.fails(KeeperException.NoAuthException.class, () -> create("/alice/below", ""));
            Checks.fails(KeeperException.NoAuthException.class, () -> zk.exists("/alice", false));
            Id id = new Id("digest", DigestAuthenticationProvider.generateDigest("alice:secret"));
            Checks.equal(Collections.singletonList(new ACL(ZooDefs.Perms.ALL, id)), alice.getACL("/alice", null));
            Checks.equal("hers", text(alice.getData("/alice", false, null)));
            alice.setACL("/alice", READ_ACL_UNSAFE, 0);
            Checks.equal("hers", text(zk.getData("/alice", false, null)));
            Checks.fails(KeeperException.NoAuthException.class, () -> alice.setData("/alice", null, -1));
            alice.close();
        });
        checks.check("a digest is masked for who may not change it", () -> {
            List<ACL> acl = Arrays.asList(
                new ACL(ZooDefs.Perms.ALL, new Id("digest", DigestAuthenticationProvider.generateDigest("bob:x"))),
                new ACL(ZooDefs.Perms.READ, ZooDefs.Ids.ANYONE_ID_UNSAFE));
            zk.create("/bob", null, acl, PERSISTENT);
            Checks.equal("bob:x", zk.getACL("/bob", null).get(0).getId().getId());
        });
        checks.check("ip", () -> {
            zk.create("/ip", bytes("near"), Collections.singletonList(
                new ACL(ZooDefs.Perms.ALL, new Id("ip", "127.0.0.0/8"))), PERSISTENT);
            Checks.equal("near", text(zk.getData("/ip", false, null)));
            zk.create("/far", null, Collections.singletonList(
                new ACL(ZooDefs.Perms.ALL, new Id("ip", "10.1.2.3"))), PERSISTENT);
            Checks.fails(KeeperException.NoAuthException.class, () -> zk.getData("/far", false, null));
        });
        checks.check("permissions of the parent decide creation and deletion", () -> {
            zk.create("/fixed", null, READ_ACL_UNSAFE, PERSISTENT);
            Checks.fails(KeeperException.NoAuthException.class, () -> create("/fixed/x", ""));
            zk.create("/keep", null, Collections.singletonList(
                new ACL(ZooDefs.Perms.ALL & ~ZooDefs.Perms.DELETE, ZooDefs.Ids.ANYONE_ID_UNSAFE)), PERSISTENT);
            create("/keep/x", "");
            Checks.fails(KeeperException.NoAuthException.class, () -> zk.delete("/keep/x", -1));
            Checks.fails(KeeperException.BadVersionException.class, () -> zk.setACL("/keep", OPEN_ACL_UNSAFE, 4));
            Checks.equal(1, zk.setACL("/keep", OPEN_ACL_UNSAFE, 0).getAversion());
            zk.delete("/keep/x", -1);
        });
        checks.check("the super user may do anything", () -> {
            ZooKeeper root = connect("", TIMEOUT_MS);
            root.addAuthInfo("digest", bytes("super:test"));
            root.setData("/fixed", bytes("x"), -1);
            root.delete("/far", -1);
            root.close();
        });
        checks.check("who am I", () -> {
            ZooKeeper carol = connect("", TIMEOUT_MS);
            carol.addAuthInfo("digest", bytes("carol:x"));
            List<String> who = new ArrayList<>();
            for (ClientInfo info : carol.whoAmI()) {
                who.add(info.getAuthScheme() + ":" + info.getUser());
            }
            Checks.equal("[digest:carol, ip:127.0.0.1]", sorted(who).toString());
            carol.close();
        });
        checks.check("an unknown scheme ends the session", () -> {
            Events events = new Events();
            ZooKeeper lost = new ZooKeeper(address, TIMEOUT_MS, events);
            events.expectState(KeeperState.SyncConnected);
            lost.addAuthInfo("nonsense", bytes("x"));
            events.expectState(KeeperState.AuthFailed);
            lost.close();
        });
    }

    private void sessions() {
        checks.check("timeouts are kept within two and twenty ticks", () -> {
            ZooKeeper hasty = connect("", 3_000);
            ZooKeeper patient = connect("", 10_000_000);
            Checks.equal(4_000, hasty.getSessionTimeout());
            Checks.equal(40_000, patient.getSessionTimeout());
            hasty.close();
            patient.close();
        });
        checks.check("closing a session deletes its ephemerals", () -> {
            ZooKeeper other = connect("", TIMEOUT_MS);
            other.create("/gone", null, OPEN_ACL_UNSAFE, EPHEMERAL);
            Events events = new Events();
            zk.exists("/gone", events);
            other.close();
            events.expect(EventType.NodeDeleted, "/gone");
        });
        checks.check("a broken connection is mended with session and watches", () -> {
            Events states = new Events();
            // The client notices its closed socket at its next ping; a short timeout brings that near.
            ZooKeeper other = new ZooKeeper(address, 6_000, states);
            states.expectState(KeeperState.SyncConnected);
            other.create("/mended", null, OPEN_ACL_UNSAFE, EPHEMERAL);
            Events data = new Events();
            Events exists = new Events();
            Events recursive = new Events();
            other.getData("/w", data, null);
            other.exists("/w/later", exists);
            other.addWatch("/w", recursive, AddWatchMode.PERSISTENT_RECURSIVE);
            long session = other.getSessionId();
            other.getTestable().closeSocket();
            states.expectState(KeeperState.Disconnected);
            zk.setData("/w", bytes("while away"), -1);
            states.expectState(KeeperState.SyncConnected);
            Checks.equal(session, other.getSessionId());
            Checks.equal(session, other.exists("/mended", false).getEphemeralOwner());
            data.expect(EventType.NodeDataChanged, "/w");
            zk.create("/w/later", null, OPEN_ACL_UNSAFE, PERSISTENT);
            exists.expect(EventType.NodeCreated, "/w/later");
            Checks.that(other.exists("/w/later", false) != null, "it is there");
            WatchedEvent last = null;
            for (WatchedEvent event : recursive.queue) {
                last = event.getType() == EventType.None ? last : event;
            }
            Checks.equal("/w/later", last == null ? null : last.getPath());
            other.close();
        });
        checks.check("a second handle takes the session over with id and password", () -> {
            ZooKeeper first = connect("", TIMEOUT_MS);
            first.create("/taken", null, OPEN_ACL_UNSAFE, EPHEMERAL);
            Events events = new Events();
            ZooKeeper second =
                new ZooKeeper(address, TIMEOUT_MS, events, first.getSessionId(), first.getSessionPasswd());
            events.expectState(KeeperState.SyncConnected);
            Checks.equal(second.getSessionId(), second.exists("/taken", false).getEphemeralOwner());
            second.close();
            Checks.eventually("/taken is gone", () -> zk.exists("/taken", false) == null);
            first.close();
        });
        checks.check("a wrong password and a closed session are refused", () -> {
            ZooKeeper other = connect("", TIMEOUT_MS);
            Events wrong = new Events();
            ZooKeeper thief = new ZooKeeper(address, TIMEOUT_MS, wrong, other.getSessionId(), new byte[16]);
            wrong.expectState(KeeperState.Expired);
            thief.close();
            // Apache drops the rightful connection before it looks at the password; the session survives.
            Checks.eventually("the session lives on", () -> {
                try {
                    return other.exists("/", false) != null;
                } catch (KeeperException.ConnectionLossException e) {
                    return false;
                }
            });
            long id = other.getSessionId();
            byte[] password = other.getSessionPasswd();
            other.close();
            Events late = new Events();
            ZooKeeper ghost = new ZooKeeper(address, TIMEOUT_MS, late, id, password);
            late.expectState(KeeperState.Expired);
            ghost.close();
        });
        checks.check("a silent session expires and its ephemerals go", () -> {
            try (Socket silent = silentSession("/silent")) {
                Events events = new Events();
                Checks.that(zk.exists("/silent", events) != null, "it is there");
                events.expect(EventType.NodeDeleted, "/silent");
                Checks.equal(-1, silent.getInputStream().read());
            }
        });
    }

    /** A session of four seconds, by hand: it owns an ephemeral node and then says nothing more. */
    private Socket silentSession(String path) throws Exception {
        String[] parts = address.split(":");
        Socket socket = new Socket(parts[0], Integer.parseInt(parts[1]));
        DataOutputStream out = new DataOutputStream(socket.getOutputStream());
        DataInputStream in = new DataInputStream(socket.getInputStream());
        out.writeInt(44);
        out.writeInt(0);
        out.writeLong(0);
        out.writeInt(4_000);
        out.writeLong(0);
        out.writeInt(16);
        out.write(new byte[16]);
        in.readFully(new byte[in.readInt()]);
        byte[] name = bytes(path);
        out.writeInt(8 + 4 + name.length + 4 + 4 + 4 + 9 + 10 + 4);
        out.writeInt(1);
        out.writeInt(1);
        out.writeInt(name.length);
        out.write(name);
        out.writeInt(-1);
        out.writeInt(1);
        out.writeInt(ZooDefs.Perms.ALL);
        out.writeInt(5);
        out.writeBytes("world");
        out.writeInt(6);
        out.writeBytes("anyone");
        out.writeInt(1);
        byte[] reply = new byte[in.readInt()];
        in.readFully(reply);
        return socket;
    }

    private void server() {
        checks.check("Apache's four-letter tool reads the server's state", () -> {
            String[] parts = address.split(":");
            int port = Integer.parseInt(parts[1]);
            Checks.equal("imok", FourLetterWordMain.send4LetterWord(parts[0], port, "ruok").trim());
            String srvr = FourLetterWordMain.send4LetterWord(parts[0], port, "srvr");
            Checks.that(srvr.startsWith("Zookeeper version: "), srvr);
            Checks.that(srvr.contains("Mode: standalone"), srvr);
        });
        checks.check("the configuration node can be read, and not changed", () -> {
            Checks.equal("", text(zk.getConfig(false, new Stat())));
            ZooKeeperAdmin admin = new ZooKeeperAdmin(address, TIMEOUT_MS, new Events());
            Checks.fails(KeeperException.ReconfigDisabledException.class,
                () -> admin.reconfigure("server.2=h:1:2;3", null, null, -1, null));
            admin.close();
        });
        checks.check("a restart keeps data, sessions, ephemerals and watches", () -> {
            Events states = new Events();
            ZooKeeper other = new ZooKeeper(address, TIMEOUT_MS, states);
            states.expectState(KeeperState.SyncConnected);
            other.create("/survivor", bytes("kept"), OPEN_ACL_UNSAFE, EPHEMERAL);
            Events events = new Events();
            Stat before = new Stat();
            other.getData("/w", events, before);
            long session = other.getSessionId();
            Checks.restartServer();
            states.expectState(KeeperState.Disconnected);
            states.expectState(KeeperState.SyncConnected);
            Checks.equal(session, other.getSessionId());
            Stat after = new Stat();
            Checks.equal("kept", text(other.getData("/survivor", false, after)));
            Checks.equal(session, after.getEphemeralOwner());
            Checks.equal(before, other.exists("/w", false));
            events.queue.removeIf(event -> event.getType() == EventType.None);
            other.setData("/w", bytes("after"), -1);
            events.expect(EventType.NodeDataChanged, "/w");
            Checks.that(other.exists("/w", false).getMzxid() > before.getMzxid(), "zxids go on growing");
            other.close();
        });
    }
}
