//! The story: it uses an ensemble in memory, and a database that is deleted at the end.

use std::error::Error;
use std::time::Duration;

use lock_recipes::{Session, ZooKeeper};
use test_rig::MemoryEnsemble;
use tokio::sync::oneshot;

use crate::reservations::{Action, BatchError, Reservations};
use crate::store::Store;
use crate::{say, show};

const PATIENCE: Duration = Duration::from_secs(5);

pub(crate) async fn tell() -> Result<(), Box<dyn Error>> {
    let ensemble = MemoryEnsemble::new();
    let store = Store::temporary()?;
    println!("Locks are on an ensemble in memory, reservations in a temporary database.\n");
    opposite_orders(&ensemble, &store).await?;
    stale_token(&ensemble, &store).await?;
    println!("\nWhat the database knows:");
    show(&store).await?;
    println!("\nNext: two terminals and a real ensemble, see the top of main.rs.");
    Ok(())
}

async fn opposite_orders(ensemble: &MemoryEnsemble, store: &Store) -> Result<(), Box<dyn Error>> {
    println!("Alice asks for 7-11 and 7-12, Bob for 7-12 and 7-11, at the same time.");
    println!("Each waits for the locks in one order, so they do not wait for each other.");
    let (alice, at_alices) = client(ensemble, store, "Alice")?;
    let (bob, at_bobs) = client(ensemble, store, "Bob")?;
    let (up, down) = (seats(["7-11", "7-12"]), seats(["7-12", "7-11"]));
    let (alices, bobs) = tokio::join!(alice.book(&up, async {}), bob.book(&down, async {}));
    say("Alice", Action::Book, &up, &alices);
    say("Bob", Action::Book, &down, &bobs);
    at_alices.close().await;
    at_bobs.close().await;
    Ok(())
}

async fn stale_token(ensemble: &MemoryEnsemble, store: &Store) -> Result<(), Box<dyn Error>> {
    println!("\nCarol finds 8-1 and 8-2 free, and goes to sleep while she pays.");
    let (carol, at_carols) = client(ensemble, store, "Carol")?;
    let (asleep, is_asleep) = oneshot::channel();
    let (wake_up, alarm) = oneshot::channel::<()>();
    let payment = async move {
        // This function holds the receiver and waits on it.
        let _ = asleep.send(());
        drop(alarm.await);
    };
    let carols = tokio::spawn({
        let carol = carol.clone();
        async move { carol.book(&seats(["8-1", "8-2"]), payment).await }
    });
    is_asleep.await?;
    let session = at_carols.session_id().ok_or("Carol has no session")?;
    ensemble.expire(session);
    println!("Her session expires, and her locks with it. Dave asks for 8-2 and 8-3.");
    let (dave, at_daves) = client(ensemble, store, "Dave")?;
    let batch = seats(["8-2", "8-3"]);
    say(
        "Dave",
        Action::Book,
        &batch,
        &dave.book(&batch, async {}).await,
    );
    println!("Carol wakes up, believes that she holds the locks, and writes.");
    drop(wake_up);
    let refused = carols.await?;
    say("Carol", Action::Book, &seats(["8-1", "8-2"]), &refused);
    if !matches!(refused, Err(BatchError::Stale(_))) {
        return Err("Carol's write was not refused".into());
    }
    println!("Nothing of her batch is booked, 8-1 neither. She asks again, for what is left.");
    let batch = seats(["8-1"]);
    say(
        "Carol",
        Action::Book,
        &batch,
        &carol.book(&batch, async {}).await,
    );
    at_carols.close().await;
    at_daves.close().await;
    Ok(())
}

fn client(
    ensemble: &MemoryEnsemble,
    store: &Store,
    name: &str,
) -> Result<(Reservations, Session), Box<dyn Error>> {
    let session = ensemble.session_with(ZooKeeper::builder().application(name));
    let client = Reservations::new(&session, "/demo", store, name, PATIENCE)?;
    Ok((client, session))
}

fn seats<const N: usize>(names: [&str; N]) -> Vec<String> {
    names.map(str::to_owned).to_vec()
}
