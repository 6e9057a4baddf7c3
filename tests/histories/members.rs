//! Servers with a quorum, of which one leads.

use fastrand::Rng;
use tokio::time::sleep;

use crate::servers::{Done, Servers};
use crate::trouble::{Trouble, Which};

/// Servers that outlive the loss of a minority. They are numbered from zero.
pub(crate) trait Members: Servers + Sized {
    /// Starts three, whose links can be cut.
    async fn three() -> Done<Self>;

    /// What can happen to these besides.
    async fn troubles(&self) -> Done<Vec<Trouble>>;

    fn count(&self) -> usize;

    async fn leader(&self) -> Done<usize>;

    async fn restart(&self, index: usize) -> Done;

    async fn kill(&self, index: usize) -> Done;

    /// Without a quorum it returns at once.
    async fn start_again(&self, index: usize) -> Done;

    fn pause(&self, index: usize) -> Done;

    fn resume(&self, index: usize) -> Done;

    fn cut_off(&self, index: usize);

    fn join_again(&self, index: usize);

    /// Has the leader hand its office to this one.
    async fn move_leader(&self, _to: usize) -> Done {
        Err("its leaders stay".into())
    }

    /// Another without data takes the place of this one.
    async fn replace(&self, _index: usize) -> Done {
        Err("its members stay".into())
    }

    /// Waits until it accepts clients.
    async fn await_service(&self, index: usize) -> Done;
}

/// The methods that all ensembles of `test_rig` have.
macro_rules! members {
    () => {
        fn count(&self) -> usize {
            self.servers().len()
        }

        async fn leader(&self) -> Done<usize> {
            Ok(self.leader().await?)
        }

        async fn restart(&self, index: usize) -> Done {
            Ok(self.restart(index).await?)
        }

        async fn kill(&self, index: usize) -> Done {
            Ok(self.kill(index).await?)
        }

        async fn start_again(&self, index: usize) -> Done {
            Ok(self.start_again(index).await?)
        }

        fn pause(&self, index: usize) -> Done {
            Ok(self.server(index).pause()?)
        }

        fn resume(&self, index: usize) -> Done {
            Ok(self.server(index).resume()?)
        }

        fn cut_off(&self, index: usize) {
            self.cut_off(index);
        }

        fn join_again(&self, index: usize) {
            self.join_again(index);
        }
    };
}
pub(crate) use members;

/// Brings a fault. All serve again when this returns.
pub(crate) async fn bring(members: &impl Members, trouble: Trouble, random: &mut Rng) -> Done {
    let count = members.count();
    let (chief, follower) = match count {
        1 => (0, 0),
        _ => {
            let chief = members.leader().await?;
            // Clients avoid a server that was down, so it is not always the same one.
            (chief, (chief + random.usize(1..count)) % count)
        }
    };
    let chosen = |which| match which {
        Which::Leader => chief,
        Which::Follower => follower,
    };
    match trouble {
        Trouble::RestartServer => members.restart(chief).await?,
        Trouble::KillServer(which, pause) => {
            members.kill(chosen(which)).await?;
            sleep(pause).await;
            members.start_again(chosen(which)).await?;
        }
        Trouble::PauseServer(which, pause) => {
            members.pause(chosen(which))?;
            sleep(pause).await;
            members.resume(chosen(which))?;
        }
        Trouble::RestartAll => {
            for index in 0..count {
                members.restart(index).await?;
            }
        }
        Trouble::LoseQuorum(pause) => {
            for index in 1..count {
                members.kill((chief + index) % count).await?;
            }
            sleep(pause).await;
            for index in 1..count {
                members.start_again((chief + index) % count).await?;
            }
        }
        Trouble::CutOff(which, pause) => {
            members.cut_off(chosen(which));
            sleep(pause).await;
            members.join_again(chosen(which));
        }
        Trouble::MoveLeader => members.move_leader(follower).await?,
        Trouble::ReplaceServer(which) => members.replace(chosen(which)).await?,
        _ => unreachable!("{trouble:?} is for other servers"),
    }
    for index in 0..count {
        members.await_service(index).await?;
    }
    Ok(())
}
