//! Measures how long it takes to find a place in a listing of ten thousand nodes.
//!
//! ```sh
//! cargo bench -p benches --bench admission
//! ```
//!
//! The files of the pure core are compiled into this program. They are private, and an interface
//! for measurements alone would have to be public.

#![allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    missing_docs,
    reason = "this program calls some of what the files have, and none of their tests"
)]

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use uuid::Uuid;

#[path = "../recipes-core/src/kind.rs"]
mod kind;
#[path = "."]
mod names {
    #[path = "../recipes-core/src/names/node_name.rs"]
    pub(crate) mod node_name;
    #[path = "../recipes-core/src/names/order.rs"]
    pub(crate) mod order;
}
#[path = "."]
mod rules {
    #[path = "../recipes-core/src/rules/admission.rs"]
    pub(crate) mod admission;
    #[cfg(test)]
    #[path = "../recipes-core/src/rules/random_names.rs"]
    pub(crate) mod random_names;
}

use names::node_name::{self, LockKind};
use names::order;
use rules::admission;

const CHILDREN: u32 = 10_000;

/// A listing in no order, as servers return it. In a read/write lock, each tenth node is a writer.
fn listing(kind: LockKind) -> Vec<String> {
    let name = |sequence: u32| {
        let kind = match kind {
            LockKind::Mutex | LockKind::Permit | LockKind::Latch => kind,
            LockKind::Read | LockKind::Write if sequence % 10 == 0 => LockKind::Write,
            LockKind::Read | LockKind::Write => LockKind::Read,
        };
        // Multiplying by an odd number keeps the uuids distinct. The sort below goes by them.
        let uuid = u128::from(sequence).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        node_name::beside(Uuid::from_u128(uuid), kind, &format!("{sequence:010}"))
    };
    let mut children: Vec<_> = (0..CHILDREN).map(name).collect();
    children.sort_unstable();
    children
}

fn contender(children: &[String], sequence: u32) -> String {
    let end = format!("{sequence:010}");
    let found = children.iter().find(|name| name.ends_with(&end));
    found.cloned().unwrap_or_default()
}

fn places(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group(format!("a listing of {CHILDREN}"));
    group.throughput(Throughput::Elements(CHILDREN.into()));
    for (name, kind, sequence) in [
        ("mutex, the last", LockKind::Mutex, CHILDREN - 1),
        ("mutex, in the middle", LockKind::Mutex, CHILDREN / 2),
        ("mutex, the second", LockKind::Mutex, 1),
        ("reader, the last", LockKind::Read, CHILDREN - 1),
        ("writer, the last", LockKind::Write, CHILDREN - 10),
    ] {
        let children = listing(kind);
        let own = contender(&children, sequence);
        group.bench_function(name, |it| {
            it.iter(|| {
                admission::admit(kind, black_box(&children), &own) != admission::Verdict::Absent
            });
        });
    }
    let children = listing(LockKind::Read);
    let readers: Vec<_> = children
        .into_iter()
        .filter(|name| !order::is_writer(name))
        .collect();
    group.throughput(Throughput::Elements(readers.len() as u64));
    group.bench_function("reader, would be admitted", |it| {
        it.iter(|| admission::ahead_of_newcomers(LockKind::Read, black_box(&readers)).is_none());
    });
    let children = listing(LockKind::Mutex);
    group.throughput(Throughput::Elements(CHILDREN.into()));
    group.bench_function("mutex, sorted for people", |it| {
        let sort = |mut children: Vec<String>| {
            order::sort(LockKind::Mutex, &mut children);
            children
        };
        it.iter_batched(|| children.clone(), sort, BatchSize::LargeInput);
    });
    group.finish();
}

criterion_group!(benches, places);
criterion_main!(benches);
