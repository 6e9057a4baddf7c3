//! What the crate etcd-client has by itself.

use std::marker::PhantomData;

use etcd_client::{
    Client, Compare, CompareOp, GetOptions, LockOptions, PutOptions, Txn, TxnOp, TxnOpResponse,
};

use crate::loops::{Contender, each};
use crate::ours::SESSION_TIMEOUT;
use crate::side::{InProcess, Lock, Locks, Side};
use crate::work::{Place, Work};

/// A key with a lease, put and deleted.
pub(super) fn least(name: &'static str) -> Box<dyn Side> {
    InProcess::boxed(name, Leases::<Key>::default())
}

/// A key with a lease, put and found to be the first of its directory in one transaction, and deleted.
pub(super) fn least_of_a_queue(name: &'static str) -> Box<dyn Side> {
    InProcess::boxed(name, Leases::<Queued>::default())
}

/// The calls by which the server waits for a lock.
pub(super) fn call(name: &'static str) -> Box<dyn Side> {
    InProcess::boxed(name, Leases::<Call>::default())
}

/// What the crate does with a lease.
trait Way: Lock + Sync {
    fn new(lease: Lease, name: &str) -> Self;

    fn does(work: Work) -> bool;
}

/// A client, and a lease of its own.
#[derive(Clone)]
struct Lease {
    client: Client,
    id: i64,
}

struct Leases<W> {
    leases: Vec<Lease>,
    way: PhantomData<W>,
}

impl<W> Default for Leases<W> {
    fn default() -> Self {
        Self {
            leases: Vec::new(),
            way: PhantomData,
        }
    }
}

impl<W: Way> Locks for Leases<W> {
    type Lock = W;

    fn does(&self, work: Work) -> bool {
        W::does(work)
    }

    async fn lock(&mut self, client: usize, name: &str, place: &Place) -> W {
        while self.leases.len() <= client {
            let address = place.url.trim_start_matches("etcd://");
            let mut client = Client::connect([address], None).await.unwrap();
            let seconds = i64::try_from(SESSION_TIMEOUT.as_secs()).unwrap();
            let id = client.lease_grant(seconds, None).await.unwrap().id();
            self.leases.push(Lease { client, id });
        }
        W::new(self.leases[client].clone(), name)
    }

    async fn round_trips(&mut self, place: &Place) -> Vec<u64> {
        let lock = self.lock(0, &place.lock, place).await;
        let attempt = move || {
            let mut lock = lock.clone();
            async move {
                lock.take().await;
            }
        };
        each(attempt, place.length).await
    }

    async fn close(self) {
        for Lease { mut client, id } in self.leases {
            client.lease_revoke(id).await.unwrap();
        }
    }
}

#[derive(Clone)]
struct Key {
    lease: Lease,
    name: String,
}

impl Way for Key {
    fn new(lease: Lease, name: &str) -> Self {
        let name = format!("/{name}/{:x}", lease.id);
        Self { lease, name }
    }

    fn does(work: Work) -> bool {
        matches!(
            work,
            Work::RoundTrip | Work::Uncontended | Work::Parallel { .. }
        )
    }
}

impl Contender for Key {
    type Held = ();

    async fn take(&mut self) {
        let options = PutOptions::new().with_lease(self.lease.id);
        let put = self.lease.client.put(&*self.name, "", Some(options));
        put.await.unwrap();
    }

    async fn give_back(&mut self, (): ()) {
        self.lease.client.delete(&*self.name, None).await.unwrap();
    }
}

impl Lock for Key {
    async fn is_refused(&self) -> bool {
        unreachable!("it does not take part in this")
    }
}

#[derive(Clone)]
struct Queued {
    lease: Lease,
    directory: String,
    key: String,
}

impl Way for Queued {
    fn new(lease: Lease, name: &str) -> Self {
        let directory = format!("/{name}/");
        let key = format!("{directory}{:x}", lease.id);
        Self {
            lease,
            directory,
            key,
        }
    }

    fn does(work: Work) -> bool {
        work == Work::Uncontended
    }
}

impl Contender for Queued {
    type Held = ();

    async fn take(&mut self) {
        let options = PutOptions::new().with_lease(self.lease.id);
        let put = TxnOp::put(&*self.key, "", Some(options));
        let list = TxnOp::get(&*self.directory, Some(GetOptions::new().with_prefix()));
        let is_new = Compare::version(&*self.key, CompareOp::Equal, 0);
        let txn = Txn::new().when([is_new]).and_then([put, list]);
        let done = self.lease.client.txn(txn).await.unwrap();
        match done.op_responses().pop() {
            Some(TxnOpResponse::Get(listed)) => assert_eq!(listed.kvs().len(), 1),
            other => panic!("{other:?}"),
        }
    }

    async fn give_back(&mut self, (): ()) {
        self.lease.client.delete(&*self.key, None).await.unwrap();
    }
}

impl Lock for Queued {
    async fn is_refused(&self) -> bool {
        unreachable!("it does not take part in this")
    }
}

#[derive(Clone)]
struct Call {
    lease: Lease,
    name: String,
}

impl Way for Call {
    fn new(lease: Lease, name: &str) -> Self {
        let name = format!("/{name}");
        Self { lease, name }
    }

    fn does(work: Work) -> bool {
        matches!(
            work,
            Work::Uncontended | Work::Saturated { .. } | Work::Paced { .. } | Work::Parallel { .. }
        )
    }
}

impl Contender for Call {
    type Held = Vec<u8>;

    async fn take(&mut self) -> Vec<u8> {
        let options = LockOptions::new().with_lease(self.lease.id);
        let locked = self.lease.client.lock(&*self.name, Some(options));
        locked.await.unwrap().key().to_vec()
    }

    async fn give_back(&mut self, key: Vec<u8>) {
        self.lease.client.unlock(key).await.unwrap();
    }
}

impl Lock for Call {
    async fn is_refused(&self) -> bool {
        unreachable!("it has no try")
    }
}
