import static java.nio.charset.StandardCharsets.ISO_8859_1;
import static java.nio.charset.StandardCharsets.UTF_8;
import static java.util.concurrent.TimeUnit.MILLISECONDS;
import static java.util.concurrent.TimeUnit.NANOSECONDS;
import static java.util.concurrent.TimeUnit.SECONDS;

import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Semaphore;
import java.util.stream.Collectors;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.api.CuratorWatcher;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMultiLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreMutex;
import org.apache.curator.framework.recipes.locks.Revoker;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.ExponentialBackoffRetry;
import org.apache.curator.retry.RetryUntilElapsed;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.Watcher.Event.KeeperState;
import org.apache.zookeeper.ZooDefs.Perms;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.data.ACL;
import org.apache.zookeeper.data.Stat;

/** Real Curator recipes, driven by one command a line on stdin. The protocol is in ../README.md. */
public final class CuratorPeer {
    private static final int CONNECT_MS_MAX = 50_000;
    /** Curator's own default, after which it fails a request that finds no connection. */
    private static final int CONNECTION_MS = 15_000;
    private static final int RETRY_EVERY_MS = 100;

    private final PrintStream answers;
    private final Map<String, CuratorFramework> clients = new ConcurrentHashMap<>();
    private final Map<String, Told> states = new ConcurrentHashMap<>();
    private final Map<String, InterProcessLock> locks = new ConcurrentHashMap<>();
    private final Map<String, Election> elections = new ConcurrentHashMap<>();
    private final Map<String, Semaphore> revocations = new ConcurrentHashMap<>();
    private final Map<String, Worker> workers = new ConcurrentHashMap<>();
    private final ExecutorService unnamed = Executors.newCachedThreadPool(CuratorPeer::daemon);

    /** What the listeners of a client were told, and when. */
    private record Told(ConnectionState state, long atMs) {}

    private CuratorPeer(PrintStream answers) {
        this.answers = answers;
    }

    public static void main(String[] args) throws Exception {
        CuratorPeer peer = new CuratorPeer(new PrintStream(new FileOutputStream(FileDescriptor.out), false, UTF_8));
        System.setOut(System.err); // stdout is only the protocol, whatever a library prints
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, ISO_8859_1));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            peer.dispatch(line);
        }
        peer.exit(null);
    }

    /** Hands the command to its thread; the reader of stdin itself never waits. */
    private void dispatch(String line) throws InterruptedException {
        Words words = new Words(line);
        String id = words.next("ID");
        String thread = words.nextOr("main");
        String verb = words.nextOr("");
        if (verb.equals("exit")) {
            exit(id);
        }
        ExecutorService executor =
                thread.equals("main") ? unnamed : workers.computeIfAbsent(thread, Worker::new).queue;
        executor.execute(() -> answer(id, thread, verb, words));
    }

    private void answer(String id, String thread, String verb, Words words) {
        String answer;
        try {
            List<String> values = perform(thread, verb, words);
            answer = values.stream().map(value -> " " + value).collect(Collectors.joining("", "ok", ""));
        } catch (Throwable failure) { // an Error, too, is an answer: the caller waits for one
            String message = failure.getMessage() == null ? "" : failure.getMessage().replaceAll("\\s+", " ");
            answer = "error " + failure.getClass().getSimpleName() + " " + message;
        }
        answers.println(id + " " + answer);
        answers.flush();
    }

    private List<String> perform(String thread, String verb, Words words) throws Exception {
        switch (verb) {
            case "version":
                return Words.values(curatorVersion());
            case "open", "session", "state", "close", "kill":
                return session(verb, words);
            case "mutex", "rw", "multi", "semaphore", "semaphoremutex":
                return define(verb, words);
            case "acquire", "release", "lockpath":
                if (thread.equals("main")) {
                    throw new IllegalArgumentException(verb + " needs a named thread: Curator's owner is the thread");
                }
                return own(verb, words);
            case "held":
                return Words.values(lock(words).isAcquiredInThisProcess());
            case "participants":
                return Words.values(mutex(lock(words)).getParticipantNodes());
            case "interrupt":
                return interrupt(words.next("THREAD"));
            case "revocable", "revoked", "revoke":
                return revocation(verb, words);
            case "candidate", "leads", "resign", "leader", "candidates":
                return election(verb, words);
            case "contend":
                return new Contention(client(words), words.next("PATH")).overMutex(words);
            case "contendrw":
                return new Contention(client(words), words.next("PATH")).overReadWriteLock(words);
            default:
                return node(verb, words);
        }
    }

    /** open CLIENT CONNECT SESSION_MS [NAMESPACE [RETRY_MS]] | session CLIENT | state CLIENT | close CLIENT | kill CLIENT */
    private List<String> session(String verb, Words words) throws Exception {
        if (verb.equals("open")) {
            return open(words);
        }
        if (verb.equals("close")) {
            String name = words.next("CLIENT");
            CuratorFramework closing = clients.remove(name);
            known(closing, "client", name).close();
            return Words.values();
        }
        if (verb.equals("state")) {
            String name = words.next("CLIENT");
            known(clients.get(name), "client", name);
            // Listeners are told after the client has connected.
            Told told = states.getOrDefault(name, new Told(ConnectionState.CONNECTED, 0));
            return Words.values(told.state, told.atMs);
        }
        CuratorFramework client = client(words);
        long session = client.getZookeeperClient().getZooKeeper().getSessionId();
        if (verb.equals("kill")) {
            kill(client);
        }
        return Words.values(Long.toHexString(session));
    }

    private List<String> open(Words words) throws Exception {
        String name = words.next("CLIENT");
        CuratorFrameworkFactory.Builder builder = CuratorFrameworkFactory.builder()
                .connectString(words.next("CONNECT"))
                .sessionTimeoutMs(words.number("SESSION_MS"))
                .connectionTimeoutMs(CONNECTION_MS)
                .retryPolicy(new ExponentialBackoffRetry(100, 5));
        String namespace = words.nextOr("");
        if (!namespace.isEmpty()) {
            builder.namespace(namespace);
        }
        if (words.hasNext()) {
            builder.retryPolicy(new RetryUntilElapsed(words.number("RETRY_MS"), RETRY_EVERY_MS));
        }
        CuratorFramework client = builder.build();
        if (clients.putIfAbsent(name, client) != null) {
            throw new IllegalArgumentException("client exists already: " + name);
        }
        client.getConnectionStateListenable()
                .addListener((unused, state) -> states.put(name, new Told(state, System.currentTimeMillis())));
        client.start();
        if (!client.blockUntilConnected(CONNECT_MS_MAX, MILLISECONDS)) {
            clients.remove(name);
            client.close();
            throw new IOException("no connection within " + CONNECT_MS_MAX + " ms");
        }
        return Words.values(Long.toHexString(client.getZookeeperClient().getZooKeeper().getSessionId()));
    }

    /**
     * Ends the session at the server and not only in the client: whoever presents its id and password may close it.
     * The client itself learns of it at its next ping.
     */
    private static void kill(CuratorFramework client) throws Exception {
        ZooKeeper handle = client.getZookeeperClient().getZooKeeper();
        CountDownLatch connected = new CountDownLatch(1);
        try (ZooKeeper second = new ZooKeeper(
                client.getZookeeperClient().getCurrentConnectionString(),
                handle.getSessionTimeout(),
                event -> {
                    if (event.getState() == KeeperState.SyncConnected) {
                        connected.countDown();
                    }
                },
                handle.getSessionId(),
                handle.getSessionPasswd())) {
            if (!connected.await(CONNECT_MS_MAX, MILLISECONDS)) {
                throw new IOException("the session could not be taken over");
            }
        }
    }

    /** mutex NAME CLIENT PATH | rw ... | semaphoremutex ... | semaphore NAME CLIENT PATH PERMITS TAKEN | multi NAME LOCK... */
    private List<String> define(String verb, Words words) {
        String name = words.next("NAME");
        if (verb.equals("multi")) {
            List<InterProcessLock> members = new ArrayList<>();
            for (String member = words.nextOr(null); member != null; member = words.nextOr(null)) {
                members.add(known(locks.get(member), "lock", member));
            }
            locks.put(name, new InterProcessMultiLock(members));
        } else if (verb.equals("mutex")) {
            locks.put(name, new InterProcessMutex(client(words), words.next("PATH")));
        } else if (verb.equals("semaphoremutex")) {
            locks.put(name, new InterProcessSemaphoreMutex(client(words), words.next("PATH")));
        } else if (verb.equals("semaphore")) {
            CuratorFramework client = client(words);
            String path = words.next("PATH");
            locks.put(name, new SemaphoreLock(client, path, words.number("PERMITS"), words.number("TAKEN")));
        } else {
            InterProcessReadWriteLock pair = new InterProcessReadWriteLock(client(words), words.next("PATH"));
            locks.put(name + ".read", pair.readLock());
            locks.put(name + ".write", pair.writeLock());
        }
        return Words.values();
    }

    /** acquire LOCK [MS] | release LOCK | lockpath LOCK: on the thread that owns, or is to own, the lock. */
    private List<String> own(String verb, Words words) throws Exception {
        InterProcessLock lock = lock(words);
        switch (verb) {
            case "acquire":
                if (words.hasNext()) {
                    return Words.values(lock.acquire(words.number("MS"), MILLISECONDS));
                }
                lock.acquire();
                return Words.values(true);
            case "release":
                lock.release();
                return Words.values();
            default:
                String node = lock instanceof SemaphoreLock leases ? leases.node() : lockPath(mutex(lock));
                return node == null ? Words.values() : Words.values(node);
        }
    }

    /** Breaks off what the thread is waiting in: Curator's acquire then throws InterruptedException. */
    private List<String> interrupt(String thread) {
        known(workers.get(thread), "thread", thread).thread.interrupt();
        return Words.values();
    }

    /** revocable LOCK | revoked LOCK MS | revoke CLIENT NODE */
    private List<String> revocation(String verb, Words words) throws Exception {
        if (verb.equals("revoke")) {
            Revoker.attemptRevoke(client(words), words.next("NODE"));
            return Words.values();
        }
        String name = words.next("LOCK");
        Semaphore requests = revocations.computeIfAbsent(name, unused -> new Semaphore(0));
        if (verb.equals("revoked")) {
            return Words.values(requests.tryAcquire(words.number("MS"), MILLISECONDS));
        }
        mutex(known(locks.get(name), "lock", name)).makeRevocable(unused -> requests.release());
        return Words.values();
    }

    /** candidate NAME latch|selector CLIENT PATH ID | leads NAME [MS] | resign NAME | leader NAME | candidates NAME */
    private List<String> election(String verb, Words words) throws Exception {
        String name = words.next("NAME");
        if (verb.equals("candidate")) {
            String kind = words.next("KIND");
            elections.put(name, Election.of(kind, client(words), words.next("PATH"), words.next("ID")));
            return Words.values();
        }
        Election election = known(elections.get(name), "candidate", name);
        switch (verb) {
            case "leads":
                return Words.values(words.hasNext() ? election.leads(words.number("MS")) : election.leadsNow());
            case "resign":
                election.stop();
                return Words.values();
            case "leader":
                return Words.values(election.leader().getId());
            default:
                return Words.values(election.candidates());
        }
    }

    /** Znodes as they are, without a recipe: VERB CLIENT PATH ... */
    private List<String> node(String verb, Words words) throws Exception {
        List<String> verbs = List.of("create", "get", "set", "delete", "children", "stat", "acl", "awaitchildren");
        if (!verbs.contains(verb)) {
            throw new IllegalArgumentException("unknown verb: " + verb);
        }
        CuratorFramework client = client(words);
        String path = words.next("PATH");
        switch (verb) {
            case "create":
                CreateMode mode = CreateMode.valueOf(words.next("MODE").toUpperCase(Locale.ROOT));
                byte[] data = words.bytes();
                return Words.values(client.create().creatingParentsIfNeeded().withMode(mode).forPath(path, data));
            case "get":
                return List.of(Words.encode(client.getData().forPath(path)));
            case "set":
                client.setData().forPath(path, words.bytes());
                return Words.values();
            case "delete":
                client.delete().forPath(path);
                return Words.values();
            case "children":
                return Words.values(client.getChildren().forPath(path));
            case "awaitchildren":
                return Words.values(awaitChildren(client, path, words.number("COUNT"), words.number("MS")));
            case "acl":
                return Words.values(client.getACL().forPath(path).stream().map(CuratorPeer::text).toList());
            default:
                Stat stat = client.checkExists().forPath(path);
                return stat == null
                        ? Words.values()
                        : Words.values(stat.getCzxid(), Long.toHexString(stat.getEphemeralOwner()), stat.getCversion());
        }
    }

    /** Waits until the node has exactly that many children, so that a test can say "when both are queued". */
    private static boolean awaitChildren(CuratorFramework client, String path, int count, int msMax) throws Exception {
        long end = System.nanoTime() + MILLISECONDS.toNanos(msMax);
        Semaphore changes = new Semaphore(0);
        CuratorWatcher changed = event -> changes.release();
        while (true) { // ends with the count or at the deadline
            // Registered before the children are read: a node that does not exist yet has a watch, too.
            Stat stat = client.checkExists().usingWatcher(changed).forPath(path);
            int children = 0;
            if (stat != null) {
                try {
                    children = client.getChildren().usingWatcher(changed).forPath(path).size();
                } catch (KeeperException.NoNodeException deletedMeanwhile) {
                    continue;
                }
            }
            if (children == count) {
                return true;
            }
            if (!changes.tryAcquire(end - System.nanoTime(), NANOSECONDS)) {
                return false;
            }
        }
    }

    /** Closes the clients, so that no session outlives its peer, but does not wait for one that cannot be closed. */
    private void exit(String id) throws InterruptedException {
        Thread closing = daemon(() -> clients.values().forEach(CuratorFramework::close));
        closing.start();
        closing.join(SECONDS.toMillis(5));
        if (id != null) {
            answers.println(id + " ok");
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private CuratorFramework client(Words words) {
        String name = words.next("CLIENT");
        return known(clients.get(name), "client", name);
    }

    private InterProcessLock lock(Words words) {
        String name = words.next("LOCK");
        return known(locks.get(name), "lock", name);
    }

    private static InterProcessMutex mutex(InterProcessLock lock) {
        if (lock instanceof InterProcessMutex mutex) {
            return mutex;
        }
        throw new IllegalArgumentException("a multi lock has no node of its own");
    }

    /** The node by which the calling thread holds the lock, or null. Not public before Curator 5.5. */
    static String lockPath(InterProcessMutex lock) throws Exception {
        var method = InterProcessMutex.class.getDeclaredMethod("getLockPath");
        method.setAccessible(true);
        try {
            return (String) method.invoke(lock);
        } catch (InvocationTargetException failure) {
            throw failure.getCause() instanceof Exception cause ? cause : failure;
        }
    }

    private static <T> T known(T found, String kind, String name) {
        if (found == null) {
            throw new IllegalArgumentException("unknown " + kind + ": " + name);
        }
        return found;
    }

    /** As ZooKeeper's command line prints it: world:anyone:cdrwa. */
    private static String text(ACL acl) {
        int perms = acl.getPerms();
        return acl.getId().getScheme() + ":" + acl.getId().getId() + ":"
                + ((perms & Perms.CREATE) != 0 ? "c" : "")
                + ((perms & Perms.DELETE) != 0 ? "d" : "")
                + ((perms & Perms.READ) != 0 ? "r" : "")
                + ((perms & Perms.WRITE) != 0 ? "w" : "")
                + ((perms & Perms.ADMIN) != 0 ? "a" : "");
    }

    static String curatorVersion() throws IOException {
        String record = "/META-INF/maven/org.apache.curator/curator-recipes/pom.properties";
        try (InputStream stream = InterProcessMutex.class.getResourceAsStream(record)) {
            Properties properties = new Properties();
            if (stream != null) {
                properties.load(stream);
            }
            return properties.getProperty("version", "unknown");
        }
    }

    static Thread daemon(Runnable body) {
        Thread thread = new Thread(body);
        thread.setDaemon(true);
        return thread;
    }

    /** One named thread and the commands that wait for it. */
    private static final class Worker {
        final Thread thread;
        final ExecutorService queue;

        Worker(String name) {
            var made = new CompletableFuture<Thread>();
            queue = Executors.newSingleThreadExecutor(body -> {
                Thread thread = daemon(body);
                thread.setName(name);
                made.complete(thread);
                return thread;
            });
            queue.execute(() -> {}); // starts the thread
            thread = made.join();
        }
    }
}
