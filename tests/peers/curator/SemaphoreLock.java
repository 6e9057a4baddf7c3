import java.util.ArrayDeque;
import java.util.Collection;
import java.util.Deque;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;

/** Permits of a semaphore, as many an acquire. A release gives back as many, those that were taken first. */
final class SemaphoreLock implements InterProcessLock {
    private final InterProcessSemaphoreV2 semaphore;
    private final int taken;
    private final Deque<Lease> leases = new ArrayDeque<>();

    SemaphoreLock(CuratorFramework client, String path, int permits, int taken) {
        this.taken = taken;
        semaphore = new InterProcessSemaphoreV2(client, path, permits);
    }

    @Override
    public void acquire() throws Exception {
        add(semaphore.acquire(taken));
    }

    @Override
    public boolean acquire(long time, TimeUnit unit) throws Exception {
        Collection<Lease> acquired = semaphore.acquire(taken, time, unit);
        if (acquired != null) {
            add(acquired);
        }
        return acquired != null;
    }

    @Override
    public void release() throws Exception {
        for (int count = 0; count < taken; count++) {
            Lease first;
            synchronized (leases) {
                first = leases.remove();
            }
            first.close();
        }
    }

    @Override
    public boolean isAcquiredInThisProcess() {
        synchronized (leases) {
            return !leases.isEmpty();
        }
    }

    /** The name of the node of the lease that a release would give back, or null. */
    String node() {
        synchronized (leases) {
            return leases.isEmpty() ? null : leases.peek().getNodeName();
        }
    }

    private void add(Collection<Lease> acquired) {
        synchronized (leases) {
            leases.addAll(acquired);
        }
    }
}
