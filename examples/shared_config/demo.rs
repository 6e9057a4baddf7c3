//! A story of three readers and some writers, all in this process.

#![allow(clippy::print_stdout, reason = "the story is told on stdout")]

use std::error::Error;
use std::future::pending;

use futures::future::{join_all, try_join_all};
use lock_recipes::{Session, ZooKeeper};
use test_rig::MemoryEnsemble;
use tokio::sync::oneshot;

use crate::config::Config;
use crate::open_session;
use crate::serve::Service;
use crate::store::Store;

const ROOT: &str = "/demo/config";

/// A reader with a session of its own, as if in a process of its own.
struct Reader {
    store: Store,
    service: Service,
}

impl Reader {
    async fn read(&mut self) -> Result<String, Box<dyn Error>> {
        let problem = self.service.take(self.store.read().await?.config)?;
        let version = self.service.config.as_ref().map_or(0, |it| it.version);
        Ok(match problem {
            Some(problem) => format!("serves version {version}; {problem}"),
            None => format!("serves version {version}"),
        })
    }
}

pub(crate) async fn tell(connect: Option<&str>) -> Result<(), Box<dyn Error>> {
    let sessions = match connect {
        Some(connect_string) => {
            println!("Connecting to {connect_string}.");
            try_join_all((0..4).map(|_| open_session(connect_string))).await?
        }
        None => {
            println!("No ensemble named, so this one is in memory: for trying out and for tests.");
            let ensemble = MemoryEnsemble::new();
            let builder = || ZooKeeper::builder().application("shared-config");
            (0..4).map(|_| ensemble.session_with(builder())).collect()
        }
    };
    let told = story(&sessions).await;
    join_all(sessions.iter().map(Session::close)).await;
    told?;
    println!("\nThe sessions are closed. Next: `write` and `serve`, in processes of their own.");
    Ok(())
}

async fn story(sessions: &[Session]) -> Result<(), Box<dyn Error>> {
    let stores: Result<Vec<_>, _> = sessions.iter().map(|it| Store::new(it, ROOT)).collect();
    let stores = stores?;
    let (writer, readers) = stores.split_first().ok_or("no session")?;
    let service = |store: &Store| Reader {
        store: store.clone(),
        service: Service::default(),
    };
    let mut readers: Vec<_> = readers.iter().map(service).collect();

    let written = writer.write(async {}).await?.config;
    println!(
        "\nA writer writes version {} under the write lock, node by node:",
        written.version
    );
    show(&written);
    together(&readers).await?;
    all_read(&mut readers).await?;

    all_wait_for_a_writer(writer, &mut readers).await?;
    a_writer_dies(writer).await?;
    all_read(&mut readers).await?;
    println!("\nThe next writer repairs:");
    let written = writer.write(async {}).await?.config;
    show(&written);
    all_read(&mut readers).await
}

/// All readers hold the read lock at the same time.
async fn together(readers: &[Reader]) -> Result<(), Box<dyn Error>> {
    let guards = readers.iter().map(|it| it.store.lock().read());
    let guards = try_join_all(guards).await?;
    println!("\nThree readers hold the read lock at the same time:");
    for guard in &guards {
        println!(
            "    token {}, held: {}",
            guard.fencing_token(),
            guard.is_valid()
        );
    }
    for guard in guards {
        guard.release().await?;
    }
    Ok(())
}

async fn all_wait_for_a_writer(
    writer: &Store,
    readers: &mut [Reader],
) -> Result<(), Box<dyn Error>> {
    let (is_midway, midway) = oneshot::channel();
    let (go_on, goes_on) = oneshot::channel();
    let queue = writer.lock().clone();
    let writing = writer.write(async {
        // If the receiver is gone, the other future has failed and reports its error.
        let _ = is_midway.send(());
        let _ = goes_on.await;
    });
    let waiting = async {
        midway.await?;
        println!("\nA writer has written half of the next version. The readers ask:");
        let go_on_when_all_wait = async {
            // This loop ends, because no reader is admitted before the writer continues.
            while queue.read_participants().await?.len() < 3 {
                tokio::task::yield_now().await;
            }
            println!("    all three wait in the queue; the writer goes on");
            let _ = go_on.send(());
            Ok::<_, Box<dyn Error>>(())
        };
        tokio::try_join!(all_read(readers), go_on_when_all_wait)?;
        Ok(())
    };
    let written = async { Ok::<_, Box<dyn Error>>(writing.await?.config) };
    let (written, ()) = tokio::try_join!(written, waiting)?;
    println!(
        "    (the writer reads it back as a reader: version {})",
        written.version
    );
    Ok(())
}

/// Drops a writer midway. Its lock is released, and its half stays.
async fn a_writer_dies(writer: &Store) -> Result<(), Box<dyn Error>> {
    let (is_midway, midway) = oneshot::channel();
    let writing = writer.write(async {
        let _ = is_midway.send(());
        pending().await
    });
    tokio::select! {
        ended = writing => {
            ended?;
            Err("the writer should have died".into())
        }
        _ = midway => {
            println!("\nA writer dies midway, three of five nodes written. The readers ask:");
            Ok(())
        }
    }
}

async fn all_read(readers: &mut [Reader]) -> Result<(), Box<dyn Error>> {
    for serves in try_join_all(readers.iter_mut().map(Reader::read)).await? {
        println!("    reader {serves}");
    }
    Ok(())
}

fn show(config: &Config) {
    for value in config.values.values() {
        println!("    {value}");
    }
    println!("    checksum {}", config.checksum());
}
