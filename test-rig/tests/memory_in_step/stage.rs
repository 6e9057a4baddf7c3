//! A script's own directory in one world, and its sessions there.

use std::collections::BTreeMap;

use futures::future::join_all;
use recipes_core::Connection;

use crate::client::Client;
use crate::numbers::{self, Numbers};
use crate::script::{Script, Step};
use crate::seen::{Answer, Heard, Leaf, Seen};
use crate::world::World;

pub(crate) struct Stage {
    world: World,
    top: String,
    directory: String,
    clients: BTreeMap<usize, Client>,
    numbers: Numbers,
}

impl Stage {
    pub(crate) async fn set(world: World, top: &str, directories: &[&str]) -> Self {
        let directory = format!("{top}/directory");
        world.create(top).await;
        world.create(&directory).await;
        for below in directories {
            world.create(&format!("{directory}{below}")).await;
        }
        Self {
            numbers: Numbers::new(world.is_etcd()),
            world,
            top: top.to_owned(),
            directory,
            clients: BTreeMap::new(),
        }
    }

    /// Number and id of each session.
    pub(crate) fn sessions(&self) -> BTreeMap<usize, i64> {
        let clients = self.clients.iter();
        clients
            .map(|(number, client)| (*number, client.id))
            .collect()
    }

    pub(crate) async fn tree(&self) -> Vec<Leaf> {
        self.world.tree(&self.top).await
    }

    /// Takes one step, and returns what each session saw of it.
    pub(crate) async fn take(&mut self, script: &Script, step: &Step) -> BTreeMap<usize, Seen> {
        self.take_as(script, step, &BTreeMap::new()).await
    }

    /// As [`take`](Self::take), and waits until each session has heard of as many events as there.
    pub(crate) async fn take_as(
        &mut self,
        script: &Script,
        step: &Step,
        there: &BTreeMap<usize, Seen>,
    ) -> BTreeMap<usize, Seen> {
        let before: BTreeMap<usize, (usize, bool)> = self
            .clients
            .iter()
            .map(|(number, it)| (*number, (it.requests_made(), it.ended.is_some())))
            .collect();
        let answers = self.carry_out(script, step).await;
        if step.changes_nodes() {
            // A request whose reply is not awaited must take effect before others can notice it.
            let forgetting = self.clients.get(&step.session());
            if let Some(client) = forgetting.filter(|_| step.is_forgotten()) {
                client.hear_out(&self.directory).await;
            }
            let listening = self.clients.values().filter(|it| it.is_watching());
            join_all(listening.map(|it| it.hear_out(&self.directory))).await;
        }
        for (number, client) in &mut self.clients {
            let events = there.get(number).map_or(0, Seen::events);
            client.until_heard(events).await;
        }
        let mut seen = BTreeMap::new();
        for (number, client) in &mut self.clients {
            let (requests_before, over) = before.get(number).copied().unwrap_or_default();
            client.note_state();
            let mut heard = client.heard();
            if !step.asks_once(*number) || client.cut {
                heard.retain(|it| *it != Heard::Reply);
            }
            let seen: &mut Seen = seen.entry(*number).or_default();
            seen.heard = heard;
            numbers::heard(seen);
            seen.requests_before = requests_before;
            seen.ended = client.ended.filter(|_| !over);
        }
        if let Some(seen) = seen.get_mut(&step.session()) {
            seen.answers = answers;
            self.numbers.learn(&mut seen.answers);
        }
        seen
    }

    /// What sessions hear after the last step.
    pub(crate) async fn late(&mut self) -> Vec<Heard> {
        let mut late = Vec::new();
        for client in self.clients.values_mut() {
            client.hear_all(&self.directory).await;
            late.extend(client.heard());
        }
        late.retain(|it| *it != Heard::Reply);
        late
    }

    async fn carry_out(&mut self, script: &Script, step: &Step) -> Vec<Answer> {
        let number = step.session();
        if let Step::Open { credentials, .. } = step {
            if self
                .clients
                .get(&number)
                .is_none_or(|it| it.ended.is_some())
            {
                let client = self.world.open(*credentials, script.cuts(number)).await;
                self.clients.insert(number, client);
            }
            return Vec::new();
        }
        let Some(client) = self.clients.get_mut(&number) else {
            return Vec::new();
        };
        let (live, was_cut) = (client.is_live(), client.cut);
        match step {
            Step::Ask { requests, .. } if client.nodes.is_some() => {
                let requests = requests.iter().map(|it| self.numbers.resolve(it));
                client.send(&requests.collect::<Vec<_>>(), &self.directory);
                if !was_cut {
                    return client.answers().await;
                }
            }
            Step::Forget { request, .. } if live => {
                client.send(&[self.numbers.resolve(request)], &self.directory);
                client.forget_last();
            }
            Step::Unwatch { .. } => client.unwatch(),
            Step::Close { .. } if live => {
                client.hang_up();
                if !was_cut {
                    client.until_ended().await;
                }
            }
            Step::Cut { .. } if live && !was_cut => {
                client.cut = true;
                self.world.cut(client);
                client.until(|it| it == Connection::Disconnected).await;
            }
            Step::Mend { .. } if was_cut => {
                client.cut = false;
                self.world.mend(client);
                if live {
                    client.until(|it| it == Connection::Connected).await;
                    return client.answers().await;
                }
                client.until_ended().await;
            }
            Step::Expire { .. } if live => {
                self.world.expire(client.id).await;
                client.cut = false;
                self.world.mend(client);
                client.hear_out(&self.directory).await;
                client.until_ended().await;
                return client.answers().await;
            }
            _ => {}
        }
        Vec::new()
    }
}
