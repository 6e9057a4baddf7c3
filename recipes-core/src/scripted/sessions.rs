//! A store whose sessions come one after the other.

use super::*;

/// Opens the given sessions one after the other, each after a pause.
#[derive(Debug)]
pub(crate) struct Sessions {
    nodes: Mutex<VecDeque<Arc<Scripted>>>,
    slow: Duration,
    asleep: Arc<Mutex<Duration>>,
}

impl Sessions {
    pub(crate) fn of(nodes: &Arc<Scripted>, slow: Duration) -> Arc<dyn Store> {
        Arc::new(Self {
            nodes: Mutex::new([Arc::clone(nodes)].into()),
            slow,
            asleep: Arc::clone(&nodes.asleep),
        })
    }

    pub(super) fn in_turn(first: &Arc<Scripted>, second: &Arc<Scripted>) -> Arc<dyn Store> {
        Arc::new(Self {
            nodes: Mutex::new([Arc::clone(first), Arc::clone(second)].into()),
            slow: Duration::ZERO,
            asleep: Arc::clone(&first.asleep),
        })
    }
}

impl Store for Sessions {
    fn traits(&self) -> Traits {
        Traits {
            remembers_names: true,
            ..Traits::default()
        }
    }

    fn connect(&self) -> BoxFuture<'_, Result<Arc<dyn Nodes>, NodesError>> {
        async move {
            tokio::time::sleep(self.slow).await;
            let next = lock(&self.nodes).pop_front();
            match next {
                Some(nodes) => Ok(nodes as Arc<dyn Nodes>),
                None => future::pending().await,
            }
        }
        .boxed()
    }

    fn suspended(&self) -> Duration {
        *lock(&self.asleep)
    }
}
