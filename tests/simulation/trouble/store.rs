//! What happens to a store as that on Redis.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use lock_recipes::Session;
use tokio::time::{Instant, sleep, sleep_until};

use super::{TIMEOUT, disconnect, later};
use crate::plan::{below, pick};
use crate::world::World;

/// A server that flushes its log each second loses that much.
const LOST_MAX: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// Again and again the server is killed, or a replica takes its place.
pub(super) async fn forgets(world: &Arc<World>) {
    let mut random = Rng::with_seed(world.plan.seed ^ 0x666f_7267);
    let timeout = world.plan.session_timeout.unwrap_or(TIMEOUT);
    if !world.plan.forgets {
        return;
    }
    loop {
        sleep(below(&mut random, timeout * 3)).await;
        if random.u8(..4) == 0 {
            forgets_an_end(world, &mut random, timeout).await;
            continue;
        }
        let (checkpoint, lost) = match random.u8(..8) {
            // It has never written anything to its disk.
            0 => (world.dawn.clone(), Duration::ZERO),
            1..=3 => (world.ensemble.checkpoint(), Duration::ZERO),
            _ => (world.ensemble.checkpoint(), below(&mut random, LOST_MAX)),
        };
        let now = Instant::now();
        let pause_max = pick(&mut random, &[timeout / 20, timeout]);
        let pause = below(&mut random, pause_max);
        // Clients find the next server at different times.
        let sessions = world.sessions();
        for id in sessions.iter().filter_map(Session::session_id) {
            if random.bool() {
                later(world, now + lost, move |world| disconnect(world, id));
                let found = now + lost + below(&mut random, timeout);
                later(world, found, move |world| {
                    world.ensemble.reconnect(id);
                    world.judge().reconnected(id);
                });
            }
        }
        later(world, now + lost, |world| world.forget(checkpoint));
        later(world, now + lost + pause, |world| {
            world.ensemble.restart();
            world.judge().restarted();
        });
    }
}

/// A session that is cut off ends, others get what it waited for, and the store forgets that. Its client
/// is back soon after.
async fn forgets_an_end(world: &Arc<World>, random: &mut Rng, timeout: Duration) {
    let sessions = world.sessions();
    let Some(id) = pick(random, &sessions).session_id() else {
        return;
    };
    disconnect(world, id);
    sleep(timeout - below(random, LOST_MAX.min(timeout / 2))).await;
    let checkpoint = world.ensemble.checkpoint();
    let down = Instant::now() + LOST_MAX;
    let up = down + below(random, timeout / 20);
    later(world, down, |world| world.forget(checkpoint));
    later(world, up, move |world| {
        world.ensemble.restart();
        world.judge().restarted();
        world.ensemble.reconnect(id);
        world.judge().reconnected(id);
    });
    sleep_until(up).await;
}

/// The clock is set forward once within half of a session timeout. It is set back, but not between a
/// restart that forgets and the first write after it, when no store could tell.
pub(super) async fn sets_clock(world: &Arc<World>) {
    let mut random = Rng::with_seed(world.plan.seed ^ 0x636c_6f63);
    let timeout = world.plan.session_timeout.unwrap_or(TIMEOUT);
    if !world.plan.sets_clock {
        return;
    }
    loop {
        sleep(timeout / 2 + below(&mut random, timeout)).await;
        let by_max = pick(&mut random, &[timeout, 60 * MINUTE]);
        let by = below(&mut random, by_max);
        let is_forward = random.bool();
        if !is_forward && world.may_repeat_numbers() {
            continue;
        }
        world.judge().tell(|| match is_forward {
            true => format!("clock set forward by {by:?}"),
            false => format!("clock set back by {by:?}"),
        });
        match is_forward {
            true => world.ensemble.set_clock_forward(by),
            false => world.ensemble.set_clock_back(by),
        }
    }
}
