//! All orders of events, and what must hold in each.

use super::*;

pub(super) struct Process;

impl Model for Process {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        let away = |index| Ours {
            stage: Stage::Away,
            rounds_left: if index == 0 { ROUNDS } else { 1 },
        };
        let is_long = std::env::var_os("MODEL_LONG").is_some();
        let ours = if is_long { OURS_LONG } else { OURS };
        vec![World {
            order: LocalOrder::new(HANDOFFS),
            ours: (0..ours).map(away).collect(),
            theirs: Theirs::Away,
            their_rounds_left: ROUNDS,
            waited_for: 0,
            queue: Vec::new(),
            nodes: 0,
            faults_left: 1,
            connections_left: 1,
            is_verified: false,
            is_watched: false,
            is_broken: false,
        }]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        (0..world.ours.len()).for_each(|index| world.steps_of(index, steps));
        match world.theirs {
            Theirs::Away if world.their_rounds_left > 0 => steps.push(Step::TheyArrive),
            Theirs::Queued(node) if world.is_first(node) => steps.push(Step::TheyHold),
            Theirs::Holding(_) => steps.push(Step::TheyRelease),
            Theirs::Away | Theirs::Queued(_) => {}
        }
        if world.faults_left > 0 {
            steps.push(Step::Lose);
        }
        if world.connections_left > 0 {
            steps.push(Step::Reconnect);
        }
        let is_gone = |(node, _)| !world.exists(node);
        if world.is_watched && world.held().is_some_and(is_gone) {
            steps.push(Step::Hear);
        }
    }

    fn next_state(&self, world: &World, step: Step) -> Option<World> {
        let mut world = world.clone();
        world.take(step);
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let handed_on = |_: &Self, world: &World| {
            let is_handed = |it: &Ours| matches!(it.stage, Stage::Given(Node::Held(..)));
            world.ours.iter().any(is_handed)
        };
        vec![
            Property::always("one holds", |_, world: &World| {
                let holding = |it: &&Ours| match it.stage {
                    Stage::Holding(node, _) => world.exists(node),
                    _ => false,
                };
                let theirs = usize::from(matches!(world.theirs, Theirs::Holding(_)));
                world.ours.iter().filter(holding).count() + theirs <= 1
            }),
            Property::always("whoever holds has the first node", |_, world: &World| {
                world.ours.iter().all(|it| match it.stage {
                    Stage::Holding(node, _) => world.is_first(node) || !world.exists(node),
                    _ => true,
                })
            }),
            Property::always(
                "handed on is what somebody vouches for",
                |_, world: &World| !world.is_broken,
            ),
            Property::always("one has the turn", |_, world: &World| {
                world.ours.iter().filter(|it| it.stage.has_turn()).count() <= 1
            }),
            Property::always("others wait for so many sections", |_, world: &World| {
                world.waited_for <= HANDOFFS + 1
            }),
            Property::always("no node is left", |_, world: &World| {
                !world.is_over() || world.queue.is_empty()
            }),
            Property::always("nobody waits for ever", |_, world: &World| {
                // Some step is possible besides giving up and faults.
                let mut steps = Vec::new();
                Process.actions(world, &mut steps);
                let idle =
                    |step: &Step| matches!(step, Step::GiveUp(_) | Step::Lose | Step::Reconnect);
                world.is_over() || !steps.iter().all(idle)
            }),
            Property::sometimes("a node is handed on", handed_on),
            Property::sometimes("everybody is through", |_, world: &World| world.is_over()),
        ]
    }
}
