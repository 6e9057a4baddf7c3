//! Clients that book and cancel batches at random, side by side.

use futures::future::try_join_all;

use crate::reservations::{Action, BatchError, Reservations};

/// The largest batch, in seats. Such batches overlap with most others, and leave seats free.
const BATCH_MAX: u64 = 4;

/// Books and cancels this many batches, and prints a line for each answer. Ends with the first
/// batch that is not answered in time.
pub(crate) async fn run(
    clients: Vec<Reservations>,
    seats: &[String],
    batches: u64,
    seed: u64,
) -> Result<(), BatchError> {
    let numbered = (0..).zip(&clients);
    let all = numbered.map(|(number, client)| {
        let random = Random(seed.wrapping_mul(1 << 32).wrapping_add(number));
        run_one(client, number, seats, batches, random)
    });
    try_join_all(all).await.map(drop)
}

async fn run_one(
    client: &Reservations,
    number: u64,
    seats: &[String],
    batches: u64,
    mut random: Random,
) -> Result<(), BatchError> {
    let mut booked = Vec::new();
    for _ in 0..batches {
        let (action, batch) = match booked.is_empty() {
            true => (Action::Book, random.batch(seats, number % 2 == 1)),
            false => (Action::Cancel, std::mem::take(&mut booked)),
        };
        let answer = match action {
            Action::Book => client.book(&batch, tokio::task::yield_now()).await,
            Action::Cancel => client.cancel(&batch).await,
        };
        crate::say(client.name(), action, &batch, &answer);
        match (answer, action) {
            (Ok(_), Action::Book) => booked = batch,
            (Ok(_), Action::Cancel)
            | (Err(BatchError::Taken { .. } | BatchError::Free { .. }), _) => {}
            // Nothing was written, so the client still has what it booked.
            (Err(BatchError::Stale(_)), Action::Cancel) => booked = batch,
            (Err(BatchError::Stale(_)), Action::Book) => {}
            (Err(error), _) => return Err(error),
        }
    }
    Ok(())
}

/// SplitMix64: the same numbers for the same seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Some of the seats, at least one, in the given order or in reverse: two clients that request
    /// locks in opposite orders could deadlock.
    fn batch(&mut self, seats: &[String], reversed: bool) -> Vec<String> {
        let count = 1 + self.next() % BATCH_MAX;
        let mut left: Vec<_> = seats.iter().collect();
        while left.len() as u64 > count {
            let out = self.next() % left.len() as u64;
            left.remove(usize::try_from(out).unwrap_or(0));
        }
        if reversed {
            left.reverse();
        }
        left.into_iter().cloned().collect()
    }
}
