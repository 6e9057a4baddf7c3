//! The Rust of the pages, so that it compiles as it stands there.
//!
//! A page shows a part of a function; here is what is around it. docs/sql.md is compiled by `tests/clients`, with the
//! clients of its databases.

use std::error::Error as StdError;
use std::fs;
use std::time::Duration;

use lock_recipes::{
    Acl, Acls, AuthId, DistributedLock, Etcd, FencingToken, InterProcessMutex, LockFactory,
    MultiLock, Owner, Permission, Redis, ReleaseOutcome, Session, ZooKeeper,
};

use crate::guides::{blocks, pages};

type Done = Result<(), Box<dyn StdError>>;

async fn write_row(_row: &str, _token: FencingToken) -> Result<(), std::io::Error> {
    Ok(())
}

#[rustfmt::skip]
async fn readme(row: &str) -> Done {
    use lock_recipes::{InterProcessMutex, connect};

    let session = connect("postgres://app:secret@db/shop").await?;    // or zk://zk1:2181,zk2:2181  redis://cache
    let order = InterProcessMutex::new(&session, "/locks/orders/4711")?;

    let guard = order.acquire().await?;             // one holder at a time, first come, first served
    write_row(&row, guard.fencing_token()).await?;  // a number that rises with every grant
    guard.release().await?;                         // or drop(guard)

    let written = order.acquire().timeout(Duration::from_secs(5))       // or in one call: the work ends with the
        .run(async |guard| write_row(&row, guard.fencing_token()).await) // lock, and the lock with the work
        .await?.output;
    Ok(written?)
}

#[rustfmt::skip]
async fn re_entry(order: &InterProcessMutex) -> Result<ReleaseOutcome, lock_recipes::Error> {
    let request = Owner::new();
    request.scope(async {
        let outer = order.acquire().await?;
        let inner = order.acquire().await?;    // hold_count() == 2, still one node
        inner.release().await?;
        outer.release().await
    }).await
}

#[rustfmt::skip]
async fn re_entry_as_in_curator(lock: &InterProcessMutex) -> Result<ReleaseOutcome, lock_recipes::Error> {
    let request = Owner::new();
    request.scope(async {
        let outer = lock.acquire().await?;
        let inner = lock.acquire().await?;      // re-enters, as in Curator
        inner.release().await?;
        outer.release().await
    }).await
}

#[rustfmt::skip]
async fn acl() -> Result<LockFactory, lock_recipes::Error> {
    let orders = AuthId::new("digest", "orders:08sob9dMDb87qFrxEU6Yzq8j3HU=");
    let ops = AuthId::new("digest", "ops:6oydJrFeF0qMiG4jeCQ0VpiwJpM=");
    let use_it = Permission::CREATE | Permission::READ | Permission::WRITE | Permission::DELETE;
    let acl = [Acl::new(use_it, orders), Acl::new(Permission::ALL, ops)];
    let session = ZooKeeper::builder()
        .auth("digest", b"orders:secret")
        .acl(Acls::new(&acl))
        .connect("zk1:2181,zk2:2181,zk3:2181")
        .await?;
    let locks = LockFactory::new(&session, "/locks/orders")?;
    Ok(locks)
}

#[rustfmt::skip]
async fn tls() -> Done {
    use lock_recipes::{TlsOptions, ZooKeeper};

    let tls = TlsOptions::new()
        .with_pem_ca(&std::fs::read_to_string("ca.pem")?)?
        .with_pem_identity(&std::fs::read_to_string("client.pem")?, &std::fs::read_to_string("client.key")?)?;
    let session = ZooKeeper::builder().tls(tls).connect("zk1:2281,zk2:2281,zk3:2281").await?;
    session.close().await;
    Ok(())
}

#[rustfmt::skip]
async fn etcd() -> Done {
    let session = Etcd::connect("etcd://etcd1:2379,etcd2:2379,etcd3:2379/app").await?;
    let session = lock_recipes::connect(&std::env::var("LOCKS_URL")?).await?;   // etcd://... or another store
    session.close().await;
    Ok(())
}

#[rustfmt::skip]
async fn redis() -> Done {
    let session = Redis::connect("redis://cache:6379/0").await?;
    let session = lock_recipes::connect(&std::env::var("LOCKS_URL")?).await?;   // zk://... or redis://...
    session.close().await;
    Ok(())
}

#[rustfmt::skip]
async fn shards(one: Session, two: Session) -> Result<ReleaseOutcome, lock_recipes::Error> {
    let orders = LockFactory::sharded([("locks-1", &one), ("locks-2", &two)], "/locks/orders")?;
    let guard = orders.mutex("4711")?.acquire().await?;
    guard.release().await
}

#[rustfmt::skip]
async fn moved_keys(old: &LockFactory, new: &LockFactory, key: &str) -> Result<Box<dyn DistributedLock>, lock_recipes::Error> {
    let lock: Box<dyn DistributedLock> = if old.shard_of(key) == new.shard_of(key) {
        Box::new(new.mutex(key)?)
    } else {
        Box::new(MultiLock::from_locks(vec![Box::new(old.mutex(key)?), Box::new(new.mutex(key)?)])?)
    };
    Ok(lock)
}

#[rustfmt::skip]
#[derive(Debug, thiserror::Error)]
enum ServiceError {
    #[error("orders are not shipped")]
    Lock(#[from] lock_recipes::Error),
    #[error("the carrier did not answer")]
    Carrier(#[from] std::io::Error),
}

#[test]
fn rust_of_every_page_is_compiled() {
    let here = unindented(include_str!("guide_code.rs"));
    let mut count = 0;
    for page in pages().iter().filter(|it| !it.ends_with("docs/sql.md")) {
        for block in blocks(&fs::read_to_string(page).unwrap(), "rust") {
            let is_here = here.contains(&unindented(&block));
            assert!(is_here, "not in this file: {}: {block}", page.display());
            count += 1;
        }
    }
    assert!(count >= 9, "{count}");
}

fn unindented(code: &str) -> String {
    code.lines()
        .map(|line| line.trim().to_owned() + "\n")
        .collect()
}
