//! The lock of most Redis clients: a hash with the owner and how often it has entered.
//!
//! It gives neither an order nor tokens. One kind polls, the other is woken with all other waiters
//! by each release.

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, Cmd, IntoConnectionInfo as _, ProtocolVersion, PushInfo,
    PushKind, cmd,
};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{interval, sleep, timeout};

use crate::loops::{Contender, each};
use crate::side::{InProcess, Lock, Locks, Side};
use crate::work::{POLL, Place, Work};

/// The lock of a client that has crashed is free after this time, which is Redisson's default.
const LEASE: Duration = Duration::from_secs(30);

/// Answers nil, or the milliseconds until the holder's lease ends.
const ACQUIRE: &str = "\
if redis.call('EXISTS', KEYS[1]) == 0 or redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then
  redis.call('HINCRBY', KEYS[1], ARGV[1], 1)
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return nil
end
return redis.call('PTTL', KEYS[1])";

/// Wakes those that wait on the channel, if one is named. Answers whether the caller held the lock.
const RELEASE: &str = "\
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end
if redis.call('HINCRBY', KEYS[1], ARGV[1], -1) > 0 then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
else
  redis.call('DEL', KEYS[1])
  if ARGV[3] then redis.call('PUBLISH', ARGV[3], 'free') end
end
return 1";

const RENEW: &str = "\
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])";

/// How a waiter learns that the lock may be free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waiting {
    Polls,
    /// By a message of each release, which goes to all waiters.
    IsWoken,
}

struct HashLocks {
    waiting: Waiting,
    clients: Vec<Arc<HashClient>>,
}

/// Its waiters try again and again.
pub(crate) fn polled(name: &'static str) -> Box<dyn Side> {
    side(name, Waiting::Polls)
}

/// Its waiters are all woken by each release.
pub(crate) fn woken(name: &'static str) -> Box<dyn Side> {
    side(name, Waiting::IsWoken)
}

fn side(name: &'static str, waiting: Waiting) -> Box<dyn Side> {
    let clients = Vec::new();
    InProcess::boxed(name, HashLocks { waiting, clients })
}

impl HashLocks {
    async fn client(&mut self, number: usize, place: &Place) -> Arc<HashClient> {
        while self.clients.len() <= number {
            let connected = HashClient::connect(&place.url).await;
            self.clients.push(Arc::new(connected));
        }
        Arc::clone(&self.clients[number])
    }
}

impl Locks for HashLocks {
    type Lock = HashLock;

    fn does(&self, work: Work) -> bool {
        match work {
            // A hash alone is neither a set nor a pair.
            Work::Set { .. } | Work::ReadWrite { .. } => false,
            _ if work.is_a_queue() => false,
            Work::RoundTrip => self.waiting == Waiting::Polls,
            _ => true,
        }
    }

    async fn lock(&mut self, client: usize, name: &str, place: &Place) -> HashLock {
        HashLock {
            client: self.client(client, place).await,
            waiting: self.waiting,
            name: name.to_owned(),
        }
    }

    async fn round_trips(&mut self, place: &Place) -> Vec<u64> {
        let connection = self.client(0, place).await.connection.clone();
        let ping = move || {
            let mut connection = connection.clone();
            async move {
                let answered = connection.send_packed_command(&cmd("PING")).await;
                answered.unwrap();
            }
        };
        each(ping, place.length).await
    }

    async fn close(self) {}
}

struct HashClient {
    connection: MultiplexedConnection,
    owner: String,
    scripts: [String; 3],
    /// Changes with each message on a channel.
    messages: watch::Receiver<u64>,
    subscribed: Mutex<HashSet<String>>,
    /// Locks that the watchdog renews, and how often each is held.
    renewed: Arc<Mutex<HashMap<String, u32>>>,
    watchdog: JoinHandle<()>,
}

impl HashClient {
    /// Connects as sessions of this library do.
    async fn connect(url: &str) -> Self {
        let info = url.into_connection_info().unwrap();
        let settings = info.redis_settings().clone();
        let info = info
            .set_redis_settings(settings.set_protocol(ProtocolVersion::RESP3))
            .set_tcp_settings(TcpSettings::default().set_nodelay(true));
        let (message, messages) = watch::channel(0);
        let push = move |push: PushInfo| -> Result<(), Infallible> {
            if push.kind == PushKind::Message {
                message.send_modify(|count| *count += 1);
            }
            Ok(())
        };
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_push_sender(push);
        let client = Client::open(info).unwrap();
        let connected = client.get_multiplexed_async_connection_with_config(&config);
        let mut connection = connected.await.unwrap();
        let mut scripts = [ACQUIRE, RELEASE, RENEW].map(str::to_owned);
        for script in &mut scripts {
            let mut load = cmd("SCRIPT");
            load.arg("LOAD").arg(&*script);
            *script = load.query_async(&mut connection).await.unwrap();
        }
        let owner = format!("{:032x}:1", fastrand::u128(..));
        let renewed = Arc::default();
        let watchdog = watch_over(
            connection.clone(),
            scripts[2].clone(),
            owner.clone(),
            Arc::clone(&renewed),
        );
        Self {
            connection,
            owner,
            scripts,
            messages,
            subscribed: Mutex::default(),
            renewed,
            watchdog: tokio::spawn(watchdog),
        }
    }

    async fn subscribe(&self, channel: String) {
        if self.subscribed.lock().unwrap().contains(&channel) {
            return;
        }
        let mut subscribe = cmd("SUBSCRIBE");
        let mut connection = self.connection.clone();
        let subscribed = connection.send_packed_command(subscribe.arg(&channel));
        subscribed.await.unwrap();
        self.subscribed.lock().unwrap().insert(channel);
    }
}

impl Drop for HashClient {
    fn drop(&mut self) {
        self.watchdog.abort();
    }
}

/// Renews what is held, three times in a lease. Ends when it is aborted.
async fn watch_over(
    mut connection: MultiplexedConnection,
    renew: String,
    owner: String,
    renewed: Arc<Mutex<HashMap<String, u32>>>,
) {
    let mut ticks = interval(LEASE / 3);
    loop {
        ticks.tick().await;
        let names: Vec<_> = renewed.lock().unwrap().keys().cloned().collect();
        for name in names {
            let call = call(&renew, &name, &owner);
            let _: i64 = call.query_async(&mut connection).await.unwrap();
        }
    }
}

fn call(script: &str, name: &str, owner: &str) -> Cmd {
    let mut call = cmd("EVALSHA");
    call.arg(script).arg(1).arg(name).arg(owner);
    call.arg(LEASE.as_millis().to_string());
    call
}

#[derive(Clone)]
struct HashLock {
    client: Arc<HashClient>,
    waiting: Waiting,
    name: String,
}

impl HashLock {
    fn channel(&self) -> String {
        format!("{}:free", self.name)
    }

    /// Tries once. Returns how long the holder's lease lasts, if another holds the lock.
    async fn attempt(&self) -> Option<Duration> {
        let acquire = call(&self.client.scripts[0], &self.name, &self.client.owner);
        let mut connection = self.client.connection.clone();
        let left: Option<u64> = acquire.query_async(&mut connection).await.unwrap();
        if left.is_none() {
            let mut renewed = self.client.renewed.lock().unwrap();
            *renewed.entry(self.name.clone()).or_default() += 1;
        }
        left.map(Duration::from_millis)
    }

    async fn wait(&self, left: Duration, messages: &mut watch::Receiver<u64>) {
        match self.waiting {
            Waiting::Polls => sleep(POLL.min(left)).await,
            // At the latest the lease of a crashed holder ends.
            Waiting::IsWoken => drop(timeout(left, messages.changed()).await),
        }
    }
}

impl Lock for HashLock {
    async fn is_refused(&self) -> bool {
        self.attempt().await.is_some()
    }
}

impl Contender for HashLock {
    type Held = ();

    async fn take(&mut self) {
        if self.attempt().await.is_none() {
            return;
        }
        let mut messages = self.client.messages.clone();
        if self.waiting == Waiting::IsWoken {
            // Others end the subscription with each wait. Staying spares them two requests.
            self.client.subscribe(self.channel()).await;
        }
        loop {
            // Seen before the attempt: a release after it is a change.
            messages.mark_unchanged();
            let Some(left) = self.attempt().await else {
                return;
            };
            self.wait(left, &mut messages).await;
        }
    }

    async fn give_back(&mut self, (): ()) {
        {
            let mut renewed = self.client.renewed.lock().unwrap();
            if let Some(count) = renewed.get_mut(&self.name) {
                *count -= 1;
                if *count == 0 {
                    renewed.remove(&self.name);
                }
            }
        }
        let mut release = call(&self.client.scripts[1], &self.name, &self.client.owner);
        if self.waiting == Waiting::IsWoken {
            release.arg(self.channel());
        }
        let mut connection = self.client.connection.clone();
        let held: bool = release.query_async(&mut connection).await.unwrap();
        assert!(held, "the lock was lost");
    }
}
