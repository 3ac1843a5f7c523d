import static java.nio.charset.StandardCharsets.UTF_8;

import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.imps.ProtectedUtils;
import org.apache.curator.framework.recipes.cache.CuratorCache;
import org.apache.curator.framework.recipes.nodes.GroupMember;
import org.apache.curator.framework.recipes.nodes.PersistentNode;
import org.apache.curator.framework.recipes.nodes.PersistentTtlNode;
import org.apache.curator.utils.ZKPaths;
import org.apache.curator.x.discovery.ServiceDiscovery;
import org.apache.curator.x.discovery.ServiceDiscoveryBuilder;
import org.apache.curator.x.discovery.ServiceInstance;
import org.apache.curator.x.discovery.ServiceProvider;
import org.apache.curator.x.discovery.ServiceType;
import org.apache.curator.x.discovery.UriSpec;
import org.apache.zookeeper.CreateMode;

/** Groups, nodes that are kept, and services: each side sees who is there of the other. */
final class CuratorMembers extends Meeting {
    CuratorMembers(Meeting meeting) {
        super(meeting);
    }

    void run(Checks checks) {
        checks.check("group member: both see each other come, change and go", this::group);
        checks.check("persistent node: what Rust keeps heals, and Curator's cache sees it", this::kept);
        checks.check("persistent node: Rust waits for a name that Curator keeps", this::sameName);
        checks.check("persistent node: numbered ones carry Curator's mark", this::numbered);
        checks.check("ttl node: both keep it alive by the same child", this::ttl);
        checks.check("service discovery: both find what the other registers", this::services);
    }

    private void group() throws Exception {
        GroupMember mine = new GroupMember(curator, "/group", "java", "from-Java".getBytes(UTF_8));
        mine.start();
        rust.tell("join r /group rust from-Rust", "r held");
        rust.tell("members /group java=from-Java,rust=from-Rust", "/group has them");
        Checks.eventually("Curator sees Rust", () -> {
            Map<String, byte[]> members = mine.getCurrentMembers();
            return members.size() == 2 && new String(members.get("rust"), UTF_8).equals("from-Rust");
        });
        mine.setThisData("anew".getBytes(UTF_8));
        rust.tell("members /group java=anew,rust=from-Rust", "/group has them");
        rust.tell("release r", "r released");
        Checks.eventually("Rust has left", () -> mine.getCurrentMembers().size() == 1);
        mine.close();
        rust.tell("members /group", "/group has them");
    }

    private void kept() throws Exception {
        try (CuratorCache cache = CuratorCache.build(curator, "/kept")) {
            cache.start();
            rust.tell("keep r ephemeral /kept/rust here", "r held at /kept/rust");
            Checks.eventually("the cache has it", () -> cache.get("/kept/rust").isPresent());
            Checks.equal("here", new String(cache.get("/kept/rust").get().getData(), UTF_8));
            long first = cache.get("/kept/rust").get().getStat().getCzxid();
            curator.delete().forPath("/kept/rust");
            Checks.eventually("the cache has another one", () -> {
                return cache.get("/kept/rust").map(node -> node.getStat().getCzxid() > first).orElse(false);
            });
            rust.tell("release r", "r released");
            Checks.eventually("the cache lost it", () -> !cache.get("/kept/rust").isPresent());
        }
    }

    private void sameName() throws Exception {
        PersistentNode mine = new PersistentNode(
                curator, CreateMode.EPHEMERAL, false, "/kept/both", "java".getBytes(UTF_8));
        mine.start();
        Checks.that(mine.waitForInitialCreate(Checks.PATIENCE_MS, TimeUnit.MILLISECONDS), "Curator has made it");
        rust.tell("keep r ephemeral /kept/both rust");
        // This question travels behind those of the one who waits.
        rust.tell("read shared-value /kept/both", "/kept/both is java");
        Checks.that(!rust.hasSaid("r held at /kept/both"), "Rust waits");
        mine.close();
        rust.await("r held at /kept/both");
        Checks.equal("rust", new String(curator.getData().forPath("/kept/both"), UTF_8));
        rust.tell("release r", "r released");
    }

    private void numbered() throws Exception {
        rust.tell("keep r sequential /kept/number- here");
        String path = rust.next("r held at ");
        String name = ZKPaths.getNodeFromPath(path);
        Checks.that(ProtectedUtils.isProtectedZNode(name), name + " has Curator's mark");
        Checks.equal("number-", ProtectedUtils.normalize(name).substring(0, 7));
        Checks.equal(10, ZKPaths.extractSequentialSuffix(name).length());
        rust.tell("release r", "r released");
    }

    private void ttl() throws Exception {
        rust.tell("keep r ttl /kept/ttl rust", "r held at /kept/ttl");
        Checks.eventually("its child", () -> curator.checkExists().forPath("/kept/ttl/touch") != null);
        int version = curator.checkExists().forPath("/kept/ttl/touch").getVersion();
        PersistentTtlNode mine = new PersistentTtlNode(curator, "/kept/ttl", 200, "java".getBytes(UTF_8));
        mine.start();
        Checks.that(mine.waitForInitialCreate(Checks.PATIENCE_MS, TimeUnit.MILLISECONDS), "Curator keeps it, too");
        Checks.equal("java", new String(curator.getData().forPath("/kept/ttl"), UTF_8));
        // Rust writes it every half an hour.
        Checks.eventually("Curator renews it", () -> {
            return curator.checkExists().forPath("/kept/ttl/touch").getVersion() >= version + 2;
        });
        Checks.equal(1, curator.getChildren().forPath("/kept/ttl").size());
        mine.close();
        rust.tell("release r", "r released");
    }

    private void services() throws Exception {
        ServiceDiscovery<String> discovery = ServiceDiscoveryBuilder.builder(String.class)
                .client(curator)
                .basePath("/services")
                .build();
        discovery.start();
        rust.tell("register a /services web one 8080", "a held");
        ServiceInstance<String> found = discovery.queryForInstance("web", "one");
        Checks.equal("rust.example", found.getAddress());
        Checks.equal(8080, found.getPort());
        Checks.equal("from Rust", found.getPayload());
        Checks.equal(ServiceType.DYNAMIC, found.getServiceType());
        Checks.equal("http://rust.example:8080/web", found.buildUriSpec());
        Checks.that(found.isEnabled(), "it is enabled");

        discovery.registerService(ServiceInstance.<String>builder()
                .name("web")
                .id("two")
                .address("java.example")
                .sslPort(9090)
                .payload("from Java")
                .uriSpec(new UriSpec("{scheme}://{address}:{ssl-port}/{id}"))
                .build());
        rust.tell("find /services web two", "found https://java.example:9090/two \"from Java\"");
        ServiceProvider<String> provider =
                discovery.serviceProviderBuilder().serviceName("web").build();
        provider.start();
        Checks.eventually("two instances", () -> provider.getAllInstances().size() == 2);
        rust.tell("release a", "a released");
        Checks.eventually("one instance", () -> provider.getAllInstances().size() == 1);
        Checks.equal("two", provider.getInstance().getId());
        provider.close();
        discovery.close();
    }
}
