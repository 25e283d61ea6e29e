//! What is promised to urgent callers beside a flood of others.

use std::num::NonZeroUsize;
use std::time::Duration;

use uncork_core::estimator::Instant;
use uncork_core::policy::{Cork, Priority};
use uncork_sim::{Arrival, Model, OpenLoop, Outcome, Process, Scenario, Service, run};

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// 20 s of one and a half times what a model can do, of the lowest priority; and so many of the highest at once, each second.
fn flood_with_clumps(clump: usize) -> Outcome {
    let service = Service::affine(ms(2), Duration::from_micros(50));
    let rate = 1.5 * 128.0 / service.time(128).as_secs_f64();
    let flood = Process::Poisson { rate }.arrivals(ms(20_000), 1);
    let flood = flood.map(|arrival| Arrival { priority: Priority::LOWEST, ..arrival });
    let urgent =
        |second: u64| Arrival { priority: Priority::HIGHEST, ..Arrival::at(Instant::EPOCH + ms(1000 * second)) };
    let clumps = (1..20).flat_map(|second| std::iter::repeat_n(urgent(second), clump));
    let mut all: Vec<Arrival> = flood.chain(clumps).collect();
    all.sort_by_key(|arrival| arrival.at);
    let weight = NonZeroUsize::MIN;
    let model = Model {
        service,
        max_latency: ms(50),
        max_batch: 128,
        weight,
        policy: Box::new(Cork),
        tried: None,
        way_back: Duration::ZERO,
        warm: true,
    };
    let scenario = Scenario { runners: 1, models: vec![model], seed: 7, timer: Duration::ZERO };
    run(scenario, &mut OpenLoop::new(all)).remove(0)
}

#[test]
fn a_queue_that_stands_is_made_shorter_for_no_urgent_caller() {
    let alone = flood_with_clumps(0);
    assert!(alone.mean_latency() < ms(40), "the flood's queue was made shorter: {:?}", alone.mean_latency());
    let beside = flood_with_clumps(400);
    let urgent = beside.of_priority(Priority::HIGHEST);
    assert_eq!((urgent.offered, urgent.on_time), (19 * 400, 19 * 400), "three and a half batches are in time");
    assert!(beside.mean_latency() < ms(40), "for the flood it is still shorter: {:?}", beside.mean_latency());
}
