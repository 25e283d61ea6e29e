//! All callers of a world together.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use uncork_core::estimator::Instant;
use uncork_core::policy::Priority;
use uncork_sim::{Arrival, ClosedLoop, OpenLoop, Source};

use crate::world::{Callers, Model, World};

/// Requests to all models, in the order of their arrival.
pub(crate) struct Traffic<'a> {
    models: &'a [Model],
    sources: Vec<Box<dyn Source>>,
    /// The next arrival at each model that has one.
    next: BinaryHeap<Reverse<(Instant, usize)>>,
    rng: Xoshiro256PlusPlus,
    /// Of the last request to each model.
    levels: Vec<Priority>,
}

impl<'a> Traffic<'a> {
    pub(crate) fn of(world: &'a World) -> Traffic<'a> {
        let source = |(model, number): (&Model, u64)| -> Box<dyn Source> {
            let seed = world.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(number);
            match &model.callers {
                Callers::Open { process, length } => Box::new(OpenLoop::new(process.arrivals(*length, seed))),
                Callers::Closed { clients, think, jitter, length } => {
                    let end = Instant::EPOCH + *length;
                    Box::new(ClosedLoop::new(*clients, *think, *jitter, end, seed))
                }
            }
        };
        let sources: Vec<Box<dyn Source>> = world.models.iter().zip(0..).map(source).collect();
        let first = |model: usize| sources[model].peek().map(|at| Reverse((at, model)));
        let next = (0..sources.len()).filter_map(first).collect();
        let rng = Xoshiro256PlusPlus::seed_from_u64(!world.seed);
        let levels = vec![Priority::DEFAULT; world.models.len()];
        Traffic { models: &world.models, sources, next, rng, levels }
    }

    fn within(&mut self, model: usize) -> Option<Duration> {
        let within = &self.models[model].within;
        (within.len() > 1).then(|| within[self.rng.random_range(0..within.len())])
    }

    fn priority(&mut self, model: usize) -> Priority {
        let Model { levels, changing, .. } = self.models[model];
        if levels > 1 && self.rng.random_bool(changing) {
            // 5, 6 … 10, 1 … 4
            let level = (self.rng.random_range(0..levels) + 4) % 10 + 1;
            self.levels[model] = Priority::new(level).expect("from 1 to 10");
        }
        self.levels[model]
    }
}

impl Source for Traffic<'_> {
    fn peek(&self) -> Option<Instant> {
        self.next.peek().map(|next| next.0.0)
    }

    fn pop(&mut self) -> Option<Arrival> {
        let Reverse((_, model)) = self.next.pop()?;
        let arrival = self.sources[model].pop()?;
        self.next.extend(self.sources[model].peek().map(|at| Reverse((at, model))));
        let most = self.models[model].most_rows;
        let rows = if most > 1 { self.rng.random_range(1..=most) } else { 1 };
        let (within, priority) = (self.within(model), self.priority(model));
        Some(Arrival { model, rows, within, priority, ..arrival })
    }

    fn answered(&mut self, model: usize, at: Instant) {
        let before = self.sources[model].peek();
        self.sources[model].answered(0, at);
        let after = self.sources[model].peek();
        if after != before {
            self.next.retain(|next| next.0.1 != model);
            self.next.extend(after.map(|at| Reverse((at, model))));
        }
    }
}
