//! Faults, in addition to those that the ensemble draws by itself.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use recipes_core::EndReason;
use recipes_testing::{Lost, Operation};
use tokio::time::{Instant, sleep, sleep_until};

use crate::plan::{Store, Trouble, below, pick};
use crate::world::World;
use lock_recipes::Session;

mod store;

/// Used in place of the session timeout if there is none.
const TIMEOUT: Duration = Duration::from_secs(3);

pub(crate) async fn make(world: Arc<World>) {
    tokio::join!(
        strikes(&world),
        store::forgets(&world),
        store::sets_clock(&world)
    );
}

async fn strikes(world: &Arc<World>) {
    let mut random = Rng::with_seed(world.plan.seed ^ 0x7472_6f75);
    if world.plan.troubles.is_empty() {
        return;
    }
    loop {
        sleep(below(&mut random, world.plan.trouble_every_max)).await;
        let trouble = pick(&mut random, &world.plan.troubles);
        strike(world, &mut random, trouble);
    }
}

fn strike(world: &Arc<World>, random: &mut Rng, trouble: Trouble) {
    let sessions = world.sessions();
    let index = random.usize(..sessions.len());
    let timeout = world.plan.session_timeout.unwrap_or(TIMEOUT);
    match (trouble, sessions[index].session_id()) {
        (Trouble::Disconnect, Some(id)) => {
            disconnect(world, id);
            let back_after = below(random, timeout * 3 / 2);
            later(world, Instant::now() + back_after, move |world| {
                world.ensemble.reconnect(id);
                world.judge().reconnected(id);
            });
        }
        (Trouble::Starve, Some(id)) => starve(world, id, timeout),
        (Trouble::Expire, Some(id)) => {
            world.judge().tell(|| format!("{id:#x} expired"));
            expire(world, id);
        }
        (Trouble::GiveUp, Some(id)) => {
            world.judge().tell(|| format!("{id:#x} given up"));
            if world.ensemble.end_client(id, EndReason::Expired) {
                world.note_given_up(id);
                let expires = Instant::now() + below(random, timeout);
                if random.bool() {
                    later(world, expires, move |world| expire(world, id));
                }
            }
        }
        (Trouble::CutAndDelete, Some(id)) => cut_and_delete(world, random, id, timeout),
        (Trouble::DeleteHeld, _) => {
            let held = world.judge().held_nodes();
            if !held.is_empty() {
                remove(world, &pick(random, &held));
            }
        }
        (Trouble::Depose, _) => depose(world, random, timeout),
        (Trouble::Sleep, _) => sleep_for(world, random, timeout),
        (Trouble::Halt, _) => halt(world, below(random, timeout)),
        (Trouble::Limit, _) => {
            let granted = timeout * random.u32(4..=12) / 12;
            world.judge().tell(|| format!("grants {granted:?}"));
            world.ensemble.grant_session_timeout(granted);
        }
        (Trouble::Stop, _) => stop(world, below(random, timeout)),
        (Trouble::Delete, _) => delete(world, random),
        (Trouble::Write, _) => {
            if let Some(node) = lock_nodes(world, random).pop() {
                write(world, random, &node);
            }
        }
        (Trouble::LoseReply, id) => lose_reply(world, random, id),
        (Trouble::Close, _) => {
            world.judge().tell(|| format!("session {index} closed"));
            let closing = world.replace(index);
            tokio::spawn(async move { closing.close().await });
        }
        (Trouble::Reap, _) => drop(world.ensemble.reap_containers()),
        (Trouble::Renew, _) => renew(world, random),
        (_, None) => {}
    }
}

/// A session is cut off, and expired as early as an ensemble without contact to it may do it.
fn starve(world: &Arc<World>, id: i64, timeout: Duration) {
    let since = world.judge().last_answered(id);
    disconnect(world, id);
    let left = (since + timeout * 7 / 12).saturating_sub(world.judge().lifelines.now());
    later(world, Instant::now() + left, move |world| {
        world.judge().starved(id, since);
        world.judge().tell(|| format!("{id:#x} starved"));
        expire(world, id);
    });
}

/// The connection breaks under a request, of this session or of any.
fn lose_reply(world: &World, random: &mut Rng, id: Option<i64>) {
    let id = id.filter(|_| random.bool());
    let operation = pick(
        random,
        &[
            Operation::Create,
            Operation::Delete,
            Operation::List,
            Operation::ListAll,
            Operation::Read,
            Operation::Watch,
            Operation::Sync,
            Operation::Multi,
        ],
    );
    let lost = pick(random, &[Lost::BeforeCommit, Lost::AfterCommit]);
    world.ensemble.lose_reply(id, operation, lost);
}

/// Does something later, unless the faults are over by then.
fn later(world: &Arc<World>, at: Instant, what: impl FnOnce(&World) + Send + 'static) {
    let world = Arc::clone(world);
    tokio::spawn(async move {
        sleep_until(at).await;
        if !world.is_calm() {
            what(&world);
        }
    });
}

/// A session on a deposed leader is not expired before the ensemble itself has counted its timeout. On a
/// store as that on Redis, a client without contact would not learn of it before others do.
fn expire(world: &World, id: i64) {
    if world.plan.store == Store::OnRedis && world.judge().lifelines.is_out_of_contact(id) {
        return;
    }
    if !world.ensemble.sessions_behind().contains(&id) {
        world.ensemble.expire(id);
    }
}

fn disconnect(world: &World, id: i64) {
    // Before it is cut off, so that the requests that it has sent until now count.
    world.judge().disconnected(id);
    world.ensemble.disconnect(id);
}

/// A session is cut off, and one of its nodes deleted before it is back.
fn cut_and_delete(world: &Arc<World>, random: &mut Rng, id: i64, timeout: Duration) {
    disconnect(world, id);
    let pause = below(random, timeout / 2);
    let (deleted, choice) = (below(random, pause), random.usize(..));
    later(world, Instant::now() + deleted, move |world| {
        let nodes = own_nodes(world, id);
        if let Some(node) = choice.checked_rem(nodes.len()).and_then(|it| nodes.get(it)) {
            remove(world, node);
        }
    });
    later(world, Instant::now() + pause, move |world| {
        world.ensemble.reconnect(id);
        world.judge().reconnected(id);
    });
}

fn own_nodes(world: &World, id: i64) -> Vec<String> {
    let names = |path: &&'static str| {
        let names = world.ensemble.children(path).into_iter();
        names
            .map(|name| format!("{path}/{name}"))
            .collect::<Vec<_>>()
    };
    let nodes = world.plan.paths.iter().flat_map(names);
    let is_own = |node: &String| owner(world, node) == Some(id);
    nodes.filter(is_own).collect()
}

fn owner(world: &World, node: &str) -> Option<i64> {
    let stat = world.ensemble.stat(node)?;
    Some(stat.ephemeral_owner)
}

/// A new leader is elected. Some sessions stay with the old one for a while. Some go back to it.
fn depose(world: &Arc<World>, random: &mut Rng, timeout: Duration) {
    if !world.ensemble.sessions_behind().is_empty() {
        return;
    }
    let sessions = world.sessions();
    let sessions: Vec<i64> = sessions.iter().filter_map(Session::session_id).collect();
    let (staying, others): (Vec<i64>, Vec<i64>) = sessions.into_iter().partition(|_| random.bool());
    change_leaders(world, "deposed", |world| world.ensemble.depose(&staying));
    let now = Instant::now();
    for id in others {
        if random.bool() {
            let back = below(random, Duration::from_millis(300));
            later(world, now + back, move |world| {
                change_leaders(world, "back", |world| world.ensemble.go_back(id));
            });
        }
        let moves = now + below(random, timeout * 3);
        later(world, moves, move |world| move_over(world, id));
    }
    for id in staying {
        let moves = now + below(random, timeout * 3);
        later(world, moves, move |world| move_over(world, id));
    }
    later(world, now + below(random, timeout * 4), |world| {
        change_leaders(world, "retired", |world| world.ensemble.retire_deposed());
    });
}

fn move_over(world: &World, id: i64) {
    change_leaders(world, "moved", |world| world.ensemble.move_over(id));
}

fn change_leaders<T>(world: &World, what: &str, change: impl FnOnce(&World) -> T) {
    world.judge().drain();
    let _changed = change(world);
    world.judge().leaders_changed(what);
}

/// The machine sleeps, and the ensemble may have expired sessions that were silent.
fn sleep_for(world: &World, random: &mut Rng, timeout: Duration) {
    let pause = below(random, timeout * 3 / 2);
    world.ensemble.suspend_machine(pause);
    world.judge().slept(pause);
    for session in world.sessions() {
        let Some(id) = session.session_id() else {
            continue;
        };
        let mut judge = world.judge();
        let since = judge.last_answered(id);
        let is_overdue = judge.lifelines.now() >= since + timeout * 7 / 12;
        if world.plan.session_timeout.is_some() && is_overdue && random.bool() {
            judge.may_be_expired(id);
            drop(judge);
            world.judge().tell(|| format!("{id:#x} expired meanwhile"));
            expire(world, id);
        }
    }
}

fn stop(world: &Arc<World>, pause: Duration) {
    world.judge().stopped();
    world.ensemble.stop();
    later(world, Instant::now() + pause, |world| {
        world.ensemble.restart();
        world.judge().restarted();
    });
}

/// It stands still, which is all that a client sees of a long collection of garbage.
fn halt(world: &Arc<World>, pause: Duration) {
    world.ensemble.pause();
    world.judge().halted();
    later(world, Instant::now() + pause, |world| {
        world.ensemble.resume();
        world.judge().went_on();
    });
}

/// The nodes of one lock in the order of their sequences.
fn lock_nodes(world: &World, random: &mut Rng) -> Vec<String> {
    let path = pick(random, &world.plan.paths);
    let mut names = world.ensemble.children(path);
    names.sort_by_key(|name| name.rsplit(['-', '_']).next().map(str::to_owned));
    let mut nodes: Vec<_> = names.iter().map(|name| format!("{path}/{name}")).collect();
    nodes.truncate(random.usize(1..=4));
    nodes
}

/// Deletes one node, or one node and a neighbour.
fn delete(world: &World, random: &mut Rng) {
    let mut nodes = lock_nodes(world, random);
    let kept = nodes.len().saturating_sub(random.usize(1..=2));
    let mut doomed = nodes.split_off(kept);
    if random.bool() {
        doomed.reverse();
    }
    for node in doomed {
        if random.u8(..4) == 0 {
            write(world, random, &node);
        }
        remove(world, &node);
    }
}

fn remove(world: &World, node: &str) {
    let session = owner(world, node).unwrap_or_default();
    if world.ensemble.delete(node).is_ok() {
        world.judge().removed(node, session);
    }
}

/// As if other contenders had used the new directory for a while, and are about to use it again.
fn renew(world: &World, random: &mut Rng) {
    let path = pick(random, &world.plan.paths);
    let Some(stat) = world.ensemble.stat(path).filter(|it| it.children == 0) else {
        return;
    };
    // Each node was created and deleted.
    let count = stat.cversion / 2;
    world.ensemble.delete(path).unwrap();
    world.ensemble.create(path, b"").unwrap();
    let next = (count - random.i32(0..3)).max(0);
    world.ensemble.set_sequence(path, next).unwrap();
    world
        .judge()
        .tell(|| format!("{path} is new, {next} comes next"));
}

fn write(world: &World, random: &mut Rng, node: &str) {
    let texts: [&[u8]; 3] = [b"__REVOKE__", b"", b"\x1f\x8b anything"];
    let data = pick(random, &texts);
    world.judge().tell(|| format!("written into {node}"));
    // The node may be gone by now.
    drop(world.ensemble.set_data(node, data));
}
