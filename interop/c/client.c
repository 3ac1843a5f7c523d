/*
 * libzookeeper_mt, the C client, against the server whose address is the first argument.
 *
 * One line per check and a closing count for `cargo xtask interop`; "@restart" asks it for a restart of the
 * server. Every wait is for an event and only bounded in time.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <zookeeper/zookeeper.h>

enum { PATIENCE_S = 30, EVENTS_MAX = 64, PATH_LEN = 256 };

static const char *self, *address;
/* Whether the server is one of several. */
static int is_member;
static int passed, failed;
static char why[512];

#define NEED(condition)                                                                     \
    do {                                                                                    \
        if (!(condition)) {                                                                 \
            snprintf(why, sizeof why, "line %d: not true: %s", __LINE__, #condition);       \
            return;                                                                         \
        }                                                                                   \
    } while (0)

#define EQUAL(wanted, got)                                                                  \
    do {                                                                                    \
        long long wanted_ = (wanted), got_ = (got);                                         \
        if (wanted_ != got_) {                                                              \
            snprintf(why, sizeof why, "line %d: %s is %lld, wanted %lld", __LINE__, #got,   \
                     got_, wanted_);                                                        \
            return;                                                                         \
        }                                                                                   \
    } while (0)

/* Field by field: the records have padding. */
static int same_stat(const struct Stat *a, const struct Stat *b)
{
    return a->czxid == b->czxid && a->mzxid == b->mzxid && a->ctime == b->ctime && a->mtime == b->mtime
        && a->version == b->version && a->cversion == b->cversion && a->aversion == b->aversion
        && a->ephemeralOwner == b->ephemeralOwner && a->dataLength == b->dataLength
        && a->numChildren == b->numChildren && a->pzxid == b->pzxid;
}

static void check(const char *name, void (*body)(void))
{
    why[0] = '\0';
    body();
    if (why[0] == '\0') {
        passed++;
        printf("ok %s\n", name);
    } else {
        failed++;
        printf("FAIL %s: %s\n", name, why);
    }
    fflush(stdout);
}

/*
 * Events in the order they arrive, one list per watcher context. All are static: after a failed check the
 * client may still report to them.
 */
struct events {
    pthread_mutex_t lock;
    pthread_cond_t more;
    int count, taken;
    struct {
        int type, state;
        char path[PATH_LEN];
    } list[EVENTS_MAX];
};

static void events_init(struct events *events)
{
    memset(events, 0, sizeof *events);
    pthread_mutex_init(&events->lock, NULL);
    pthread_cond_init(&events->more, NULL);
}

static void on_event(zhandle_t *zh, int type, int state, const char *path, void *context)
{
    struct events *events = context;
    (void)zh;
    if (events == NULL)
        return;
    pthread_mutex_lock(&events->lock);
    if (events->count < EVENTS_MAX) {
        events->list[events->count].type = type;
        events->list[events->count].state = state;
        snprintf(events->list[events->count].path, PATH_LEN, "%s", path ? path : "");
        events->count++;
    }
    pthread_cond_broadcast(&events->more);
    pthread_mutex_unlock(&events->lock);
}

/* The index of the next event, or -1 when none comes. */
static int next_event(struct events *events)
{
    struct timespec end;
    int index = -1;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += PATIENCE_S;
    pthread_mutex_lock(&events->lock);
    while (events->taken == events->count) {
        if (pthread_cond_timedwait(&events->more, &events->lock, &end) == ETIMEDOUT)
            break;
    }
    if (events->taken < events->count)
        index = events->taken++;
    pthread_mutex_unlock(&events->lock);
    return index;
}

/* Whether the next event about a node is this one. */
static int got_event(struct events *events, int type, const char *path)
{
    int i;
    while ((i = next_event(events)) >= 0 && events->list[i].type == ZOO_SESSION_EVENT)
        ;
    return i >= 0 && events->list[i].type == type && strcmp(events->list[i].path, path) == 0;
}

/* Whether the session comes to this state. */
static int got_state(struct events *events, int state)
{
    int i;
    while ((i = next_event(events)) >= 0)
        if (events->list[i].type == ZOO_SESSION_EVENT && events->list[i].state == state)
            return 1;
    return 0;
}

static zhandle_t *connect_as(const clientid_t *id, struct events *states, int timeout_ms)
{
    events_init(states);
    return zookeeper_init(address, on_event, timeout_ms, id, states, 0);
}

static struct events main_states;
static zhandle_t *zh;

static void connects(void)
{
    zh = connect_as(NULL, &main_states, 10000);
    NEED(zh != NULL);
    NEED(got_state(&main_states, ZOO_CONNECTED_STATE));
    NEED(zoo_client_id(zh)->client_id != 0);
    EQUAL(10000, zoo_recv_timeout(zh));
}

static void creates_reads_writes_deletes(void)
{
    char name[PATH_LEN], data[64];
    int len = sizeof data;
    struct Stat stat, again;
    EQUAL(ZOK, zoo_create2(zh, "/c", "one", 3, &ZOO_OPEN_ACL_UNSAFE, ZOO_PERSISTENT, name, sizeof name, &stat));
    NEED(strcmp(name, "/c") == 0);
    EQUAL(3, stat.dataLength);
    EQUAL(stat.czxid, stat.mzxid);
    EQUAL(ZOK, zoo_get(zh, "/c", 0, data, &len, &again));
    EQUAL(3, len);
    NEED(memcmp(data, "one", 3) == 0);
    NEED(same_stat(&stat, &again));
    EQUAL(ZOK, zoo_set2(zh, "/c", "longer", 6, 0, &stat));
    EQUAL(1, stat.version);
    EQUAL(6, stat.dataLength);
    EQUAL(ZBADVERSION, zoo_set(zh, "/c", "x", 1, 0));
    EQUAL(ZBADVERSION, zoo_delete(zh, "/c", 0));
    EQUAL(ZOK, zoo_delete(zh, "/c", 1));
    EQUAL(ZNONODE, zoo_exists(zh, "/c", 0, &stat));
}

static void keeps_null_data_null(void)
{
    char data[8];
    int len = sizeof data;
    EQUAL(ZOK, zoo_create(zh, "/cnull", NULL, -1, &ZOO_OPEN_ACL_UNSAFE, ZOO_PERSISTENT, NULL, 0));
    EQUAL(ZOK, zoo_get(zh, "/cnull", 0, data, &len, NULL));
    EQUAL(-1, len);
}

static void refuses(void)
{
    EQUAL(ZNONODE, zoo_create(zh, "/no/parent", "", 0, &ZOO_OPEN_ACL_UNSAFE, 0, NULL, 0));
    EQUAL(ZNODEEXISTS, zoo_create(zh, "/cnull", "", 0, &ZOO_OPEN_ACL_UNSAFE, 0, NULL, 0));
    EQUAL(ZNONODE, zoo_delete(zh, "/nothing", -1));
    EQUAL(ZOK, zoo_create(zh, "/ceph", "", 0, &ZOO_OPEN_ACL_UNSAFE, ZOO_EPHEMERAL, NULL, 0));
    EQUAL(ZNOCHILDRENFOREPHEMERALS, zoo_create(zh, "/ceph/x", "", 0, &ZOO_OPEN_ACL_UNSAFE, 0, NULL, 0));
    EQUAL(ZOK, zoo_create(zh, "/cnull/x", "", 0, &ZOO_OPEN_ACL_UNSAFE, 0, NULL, 0));
    EQUAL(ZNOTEMPTY, zoo_delete(zh, "/cnull", -1));
    EQUAL(ZBADARGUMENTS, zoo_delete(zh, "/zookeeper", -1));
}

static void creates_in_every_mode(void)
{
    char name[PATH_LEN];
    struct Stat stat;
    struct String_vector children;
    EQUAL(ZOK, zoo_create(zh, "/modes-c", "", 0, &ZOO_OPEN_ACL_UNSAFE, 0, NULL, 0));
    EQUAL(ZOK, zoo_create(zh, "/modes-c/s-", "", 0, &ZOO_OPEN_ACL_UNSAFE, ZOO_PERSISTENT_SEQUENTIAL, name, sizeof name));
    NEED(strcmp(name, "/modes-c/s-0000000000") == 0);
    EQUAL(ZOK, zoo_create2(zh, "/modes-c/e-", "", 0, &ZOO_OPEN_ACL_UNSAFE, ZOO_EPHEMERAL_SEQUENTIAL, name, sizeof name, &stat));
    NEED(strcmp(name, "/modes-c/e-0000000001") == 0);
    EQUAL(zoo_client_id(zh)->client_id, stat.ephemeralOwner);
    EQUAL(ZOK, zoo_create(zh, "/modes-c/box", "", 0, &ZOO_OPEN_ACL_UNSAFE, ZOO_CONTAINER, name, sizeof name));
    EQUAL(ZOK, zoo_create_ttl(zh, "/modes-c/ttl", "", 0, &ZOO_OPEN_ACL_UNSAFE, ZOO_PERSISTENT_WITH_TTL, 3600000, name, sizeof name));
    EQUAL(ZOK, zoo_create2_ttl(zh, "/modes-c/t-", "", 0, &ZOO_OPEN_ACL_UNSAFE, ZOO_PERSISTENT_SEQUENTIAL_WITH_TTL, 3600000, name, sizeof name, &stat));
    NEED(strcmp(name, "/modes-c/t-0000000004") == 0);
    EQUAL(ZOK, zoo_get_children2(zh, "/modes-c", 0, &children, &stat));
    EQUAL(5, children.count);
    EQUAL(5, stat.numChildren);
    EQUAL(5, stat.cversion);
    deallocate_String_vector(&children);
}

static void transacts(void)
{
    zoo_op_t ops[4];
    zoo_op_result_t results[4];
    char name[PATH_LEN];
    struct Stat stat;
    zoo_create_op_init(&ops[0], "/tc", "1", 1, &ZOO_OPEN_ACL_UNSAFE, 0, name, sizeof name);
    zoo_set_op_init(&ops[1], "/tc", "22", 2, 0, &stat);
    zoo_check_op_init(&ops[2], "/tc", 1);
    zoo_delete_op_init(&ops[3], "/cnull/x", -1);
    EQUAL(ZOK, zoo_multi(zh, 4, ops, results));
    NEED(strcmp(name, "/tc") == 0);
    EQUAL(1, stat.version);
    EQUAL(2, stat.dataLength);
    for (int i = 0; i < 4; i++)
        EQUAL(ZOK, results[i].err);

    zoo_delete_op_init(&ops[0], "/tc", -1);
    zoo_check_op_init(&ops[1], "/tc", 7);
    zoo_delete_op_init(&ops[2], "/nothing", -1);
    EQUAL(ZNONODE, zoo_multi(zh, 3, ops, results));
    EQUAL(ZOK, results[0].err);
    EQUAL(ZNONODE, results[1].err);
    EQUAL(ZRUNTIMEINCONSISTENCY, results[2].err);
    EQUAL(ZOK, zoo_exists(zh, "/tc", 0, &stat));
}

static void watches(void)
{
    static struct events data, exists, children;
    struct String_vector names;
    struct Stat stat;
    char buffer[8];
    int len = sizeof buffer;
    events_init(&data);
    events_init(&exists);
    events_init(&children);
    EQUAL(ZOK, zoo_wget(zh, "/tc", on_event, &data, buffer, &len, NULL));
    EQUAL(ZNONODE, zoo_wexists(zh, "/tc/x", on_event, &exists, &stat));
    EQUAL(ZOK, zoo_wget_children(zh, "/tc", on_event, &children, &names));
    deallocate_String_vector(&names);
    EQUAL(ZOK, zoo_set(zh, "/tc", "new", 3, -1));
    NEED(got_event(&data, ZOO_CHANGED_EVENT, "/tc"));
    EQUAL(ZOK, zoo_create(zh, "/tc/x", "", 0, &ZOO_OPEN_ACL_UNSAFE, 0, NULL, 0));
    NEED(got_event(&exists, ZOO_CREATED_EVENT, "/tc/x"));
    NEED(got_event(&children, ZOO_CHILD_EVENT, "/tc"));
    EQUAL(ZOK, zoo_wexists(zh, "/tc/x", on_event, &exists, &stat));
    EQUAL(ZOK, zoo_delete(zh, "/tc/x", -1));
    NEED(got_event(&exists, ZOO_DELETED_EVENT, "/tc/x"));
}

static void removes_watches(void)
{
    static struct events events;
    struct Stat stat;
    events_init(&events);
    EQUAL(ZOK, zoo_wexists(zh, "/tc", on_event, &events, &stat));
    EQUAL(ZOK, zoo_remove_watches(zh, "/tc", ZWATCHTYPE_DATA, on_event, &events, 0));
    EQUAL(ZNOWATCHER, zoo_remove_watches(zh, "/tc", ZWATCHTYPE_DATA, on_event, &events, 0));
    EQUAL(ZOK, zoo_set(zh, "/tc", "", 0, -1));
    EQUAL(ZOK, zoo_exists(zh, "/tc", 0, &stat));
    pthread_mutex_lock(&events.lock);
    int changed = 0;
    for (int i = 0; i < events.count; i++)
        changed += events.list[i].type == ZOO_CHANGED_EVENT;
    pthread_mutex_unlock(&events.lock);
    EQUAL(0, changed);
}

/* Completions tell the waiting check through these. */
struct reply {
    pthread_mutex_t lock;
    pthread_cond_t done;
    int count, rc;
};

static void reply_init(struct reply *reply)
{
    memset(reply, 0, sizeof *reply);
    pthread_mutex_init(&reply->lock, NULL);
    pthread_cond_init(&reply->done, NULL);
}

static void reply_add(struct reply *reply, int rc)
{
    pthread_mutex_lock(&reply->lock);
    reply->count++;
    if (rc != ZOK)
        reply->rc = rc;
    pthread_cond_signal(&reply->done);
    pthread_mutex_unlock(&reply->lock);
}

static void on_string(int rc, const char *value, const void *context)
{
    (void)value;
    reply_add((struct reply *)context, rc);
}

static void on_void(int rc, const void *context)
{
    reply_add((struct reply *)context, rc);
}

/* Whether `count` replies come; the first error among them is in `rc`. */
static int replies(struct reply *reply, int count)
{
    struct timespec end;
    int enough;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += PATIENCE_S;
    pthread_mutex_lock(&reply->lock);
    while (reply->count < count && pthread_cond_timedwait(&reply->done, &reply->lock, &end) != ETIMEDOUT)
        ;
    enough = reply->count >= count;
    pthread_mutex_unlock(&reply->lock);
    return enough;
}

static void pipelines(void)
{
    static struct reply reply;
    struct String_vector names;
    reply_init(&reply);
    EQUAL(ZOK, zoo_create(zh, "/many", "", 0, &ZOO_OPEN_ACL_UNSAFE, 0, NULL, 0));
    for (int i = 0; i < 500; i++)
        EQUAL(ZOK, zoo_acreate(zh, "/many/n-", "", 0, &ZOO_OPEN_ACL_UNSAFE, ZOO_PERSISTENT_SEQUENTIAL, on_string, &reply));
    EQUAL(ZOK, zoo_async(zh, "/many", on_string, &reply));
    NEED(replies(&reply, 501));
    EQUAL(ZOK, reply.rc);
    EQUAL(ZOK, zoo_get_children(zh, "/many", 0, &names));
    EQUAL(500, names.count);
    deallocate_String_vector(&names);
}

static void controls_access(void)
{
    static struct events states;
    struct ACL_vector acl;
    struct Stat stat;
    static struct reply reply;
    char data[8];
    int len = sizeof data;
    zhandle_t *other = connect_as(NULL, &states, 10000);
    NEED(got_state(&states, ZOO_CONNECTED_STATE));
    reply_init(&reply);
    EQUAL(ZOK, zoo_add_auth(other, "digest", "dave:secret", 11, on_void, &reply));
    NEED(replies(&reply, 1));
    EQUAL(ZOK, reply.rc);
    EQUAL(ZOK, zoo_create(other, "/dave", "his", 3, &ZOO_CREATOR_ALL_ACL, 0, NULL, 0));
    EQUAL(ZNOAUTH, zoo_get(zh, "/dave", 0, data, &len, NULL));
    EQUAL(ZOK, zoo_get_acl(other, "/dave", &acl, &stat));
    EQUAL(1, acl.count);
    NEED(strcmp(acl.data[0].id.scheme, "digest") == 0);
    NEED(strncmp(acl.data[0].id.id, "dave:", 5) == 0);
    deallocate_ACL_vector(&acl);
    EQUAL(ZOK, zoo_set_acl(other, "/dave", 0, &ZOO_OPEN_ACL_UNSAFE));
    EQUAL(ZOK, zoo_get(zh, "/dave", 0, data, &len, &stat));
    EQUAL(1, stat.aversion);
    EQUAL(ZINVALIDACL, zoo_create(zh, "/nobody", "", 0, &ZOO_CREATOR_ALL_ACL, 0, NULL, 0));
    zookeeper_close(other);
}

static void reads_the_configuration(void)
{
    char data[512];
    int len = sizeof data;
    struct Stat stat;
    EQUAL(ZOK, zoo_getconfig(zh, 0, data, &len, &stat));
    /* A server that is alone names nobody. */
    if (is_member)
        NEED(len > 9 && memcmp(data, "server.1=", 9) == 0);
    else
        EQUAL(0, len);
    EQUAL(ZRECONFIGDISABLED, zoo_reconfig(zh, NULL, "2", NULL, -1, data, &len, &stat));
}

/*
 * In a process of its own: opens a session with an ephemeral node, prints its id and dies without closing it.
 * Two live handles on one session would take it from each other for ever.
 */
static int abandon_a_session(void)
{
    static struct events states;
    zhandle_t *dying = connect_as(NULL, &states, 10000);
    if (!got_state(&states, ZOO_CONNECTED_STATE))
        return 1;
    if (zoo_create(dying, "/taken-c", "", 0, &ZOO_OPEN_ACL_UNSAFE, ZOO_EPHEMERAL, NULL, 0) != ZOK)
        return 1;
    const clientid_t *id = zoo_client_id(dying);
    printf("%lld", (long long)id->client_id);
    for (size_t i = 0; i < sizeof id->passwd; i++)
        printf(" %d", (unsigned char)id->passwd[i]);
    printf("\n");
    fflush(stdout);
    _exit(0);
}

static void takes_a_session_over(void)
{
    static struct events states;
    struct Stat stat;
    clientid_t id;
    long long number;
    char command[1024];
    snprintf(command, sizeof command, "'%s' '%s' abandon", self, address);
    FILE *dying = popen(command, "r");
    NEED(dying != NULL);
    NEED(fscanf(dying, "%lld", &number) == 1);
    id.client_id = number;
    for (size_t i = 0; i < sizeof id.passwd; i++) {
        int byte;
        NEED(fscanf(dying, "%d", &byte) == 1);
        id.passwd[i] = (char)byte;
    }
    EQUAL(0, pclose(dying));
    zhandle_t *heir = connect_as(&id, &states, 10000);
    NEED(got_state(&states, ZOO_CONNECTED_STATE));
    EQUAL(id.client_id, zoo_client_id(heir)->client_id);
    EQUAL(ZOK, zoo_exists(heir, "/taken-c", 0, &stat));
    EQUAL(id.client_id, stat.ephemeralOwner);
    EQUAL(ZOK, zookeeper_close(heir));
    EQUAL(ZNONODE, zoo_exists(zh, "/taken-c", 0, &stat));
}

static void refuses_an_unknown_session(void)
{
    static struct events states;
    clientid_t id = *zoo_client_id(zh);
    memset(id.passwd, 0x55, sizeof id.passwd);
    id.client_id += 12345;
    zhandle_t *ghost = connect_as(&id, &states, 10000);
    NEED(got_state(&states, ZOO_EXPIRED_SESSION_STATE));
    zookeeper_close(ghost);
}

static void survives_a_restart(void)
{
    static struct events states, events;
    struct Stat stat, before;
    char line[8];
    zhandle_t *other = connect_as(NULL, &states, 10000);
    NEED(got_state(&states, ZOO_CONNECTED_STATE));
    int64_t session = zoo_client_id(other)->client_id;
    EQUAL(ZOK, zoo_create(other, "/kept-c", "x", 1, &ZOO_OPEN_ACL_UNSAFE, ZOO_EPHEMERAL, NULL, 0));
    events_init(&events);
    EQUAL(ZOK, zoo_wexists(other, "/tc", on_event, &events, &before));
    printf("@restart\n");
    fflush(stdout);
    NEED(fgets(line, sizeof line, stdin) != NULL);
    NEED(got_state(&states, ZOO_CONNECTING_STATE));
    NEED(got_state(&states, ZOO_CONNECTED_STATE));
    EQUAL(session, zoo_client_id(other)->client_id);
    EQUAL(ZOK, zoo_exists(other, "/kept-c", 0, &stat));
    EQUAL(session, stat.ephemeralOwner);
    EQUAL(ZOK, zoo_exists(other, "/tc", 0, &stat));
    NEED(same_stat(&before, &stat));
    EQUAL(ZOK, zoo_set(other, "/tc", "after", 5, -1));
    NEED(got_event(&events, ZOO_CHANGED_EVENT, "/tc"));
    zookeeper_close(other);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: %s HOST:PORT [member]\n", argv[0]);
        return 2;
    }
    self = argv[0];
    address = argv[1];
    zoo_set_debug_level(ZOO_LOG_LEVEL_WARN);
    if (argc == 3 && strcmp(argv[2], "abandon") == 0)
        return abandon_a_session();
    is_member = argc == 3 && strcmp(argv[2], "member") == 0;
    check("connects", connects);
    if (zh != NULL) {
        check("creates, reads, writes and deletes with exact stats", creates_reads_writes_deletes);
        check("keeps null data null", keeps_null_data_null);
        check("each refusal has its own code", refuses);
        check("creates in every mode", creates_in_every_mode);
        check("a transaction does all or nothing", transacts);
        check("one-shot watches fire", watches);
        check("a removed watch is silent", removes_watches);
        check("hundreds of requests in flight", pipelines);
        check("digest access control", controls_access);
        check("the configuration can be read, and not changed", reads_the_configuration);
        check("a session outlives its process and is taken over", takes_a_session_over);
        check("an unknown session is refused", refuses_an_unknown_session);
        check("a restart keeps session, ephemerals and watches", survives_a_restart);
        zookeeper_close(zh);
    }
    printf("%d passed, %d failed\n", passed, failed);
    return failed == 0 ? 0 : 1;
}
