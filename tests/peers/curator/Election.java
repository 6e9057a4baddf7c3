import static java.util.concurrent.TimeUnit.MILLISECONDS;

import java.util.Collection;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderSelector;
import org.apache.curator.framework.recipes.leader.LeaderSelectorListenerAdapter;
import org.apache.curator.framework.recipes.leader.Participant;

/** A candidate: Curator's LeaderLatch or LeaderSelector. */
interface Election {
    /** Waits until it leads; false if it does not in time. */
    boolean leads(int msMax) throws Exception;

    boolean leadsNow();

    void stop() throws Exception;

    Collection<Participant> participants() throws Exception;

    Participant leader() throws Exception;

    static Election of(String kind, CuratorFramework client, String path, String id) throws Exception {
        return switch (kind) {
            case "latch" -> new Latch(client, path, id);
            case "selector" -> new Selector(client, path, id);
            default -> throw new IllegalArgumentException("unknown kind of election: " + kind);
        };
    }

    /** Ids in the order of the queue, each after + if it leads and - if it does not. */
    default List<String> candidates() throws Exception {
        return participants().stream()
                .map(it -> (it.isLeader() ? "+" : "-") + it.getId())
                .toList();
    }

    final class Latch implements Election {
        private final LeaderLatch latch;

        Latch(CuratorFramework client, String path, String id) throws Exception {
            latch = new LeaderLatch(client, path, id);
            latch.start();
        }

        @Override
        public boolean leads(int msMax) throws Exception {
            return latch.await(msMax, MILLISECONDS);
        }

        @Override
        public boolean leadsNow() {
            return latch.hasLeadership();
        }

        @Override
        public void stop() throws Exception {
            latch.close();
        }

        @Override
        public Collection<Participant> participants() throws Exception {
            return latch.getParticipants();
        }

        @Override
        public Participant leader() throws Exception {
            return latch.getLeader();
        }
    }

    /** Leads until it is stopped, and once only. */
    final class Selector implements Election {
        private final LeaderSelector selector;
        private final CountDownLatch stopped = new CountDownLatch(1);
        private final Semaphore led = new Semaphore(0);

        Selector(CuratorFramework client, String path, String id) {
            selector = new LeaderSelector(client, path, new LeaderSelectorListenerAdapter() {
                @Override
                public void takeLeadership(CuratorFramework unused) throws Exception {
                    led.release();
                    stopped.await();
                }
            });
            selector.setId(id);
            selector.start();
        }

        @Override
        public boolean leads(int msMax) throws Exception {
            if (!led.tryAcquire(msMax, MILLISECONDS)) {
                return false;
            }
            led.release();
            return true;
        }

        @Override
        public boolean leadsNow() {
            return selector.hasLeadership();
        }

        @Override
        public void stop() {
            stopped.countDown();
            if (!selector.hasLeadership()) {
                selector.close();
            }
        }

        @Override
        public Collection<Participant> participants() throws Exception {
            return selector.getParticipants();
        }

        @Override
        public Participant leader() throws Exception {
            return selector.getLeader();
        }
    }
}
