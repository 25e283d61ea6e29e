//! Workers that do what they should not: each has its sentence, and harms nobody else.

use futures_util::future::join_all;
use uncork::error::Error;
use uncork::registry::{Registry, Terms};

use super::{model, program, row, served, sum};

/// Why a model of this program cannot be loaded.
async fn refusal_of(program: uncork::worker::Program) -> String {
    Registry::load(vec![model(program)]).map(drop).unwrap_err().to_string()
}

#[tokio::test]
async fn a_worker_that_cannot_be_started_says_why() {
    let cases: [(&[&str], &str); 7] = [
        (&["refuses"], "its worker says: there is no such class"),
        (
            &["exits"],
            "it exited with code 1 before it was ready; it wrote last: ModuleNotFoundError: No module named 'sklearn'",
        ),
        (&["nonsense"], "its worker breaks the protocol: a frame with"),
        (&["too-long"], "a frame with 4294967295 bytes of JSON, more than 16777216"),
        (&["later-version"], "it speaks version 2 of the protocol, we speak 1"),
        (&["never"], "not ready within start_timeout_ms = 300"),
        (&["never-answers"], "has not answered a batch of made-up rows within start_timeout_ms = 2000"),
    ];
    for (how, why) in cases {
        let mut program = program(how);
        match how {
            ["never"] => program.start_timeout = std::time::Duration::from_millis(300),
            ["never-answers"] => program.start_timeout = std::time::Duration::from_secs(2),
            _ => {}
        }
        let message = refusal_of(program).await;
        assert!(message.contains(why), "{how:?}: {message}");
    }
    let mut missing = program(&[]);
    missing.command = vec!["no-such-program-anywhere".into()];
    let message = refusal_of(missing).await;
    assert!(message.contains("'no-such-program-anywhere' cannot be started"), "{message}");
}

#[tokio::test]
async fn what_a_worker_prints_is_no_frame_and_stops_nobody() {
    let registry = Registry::load(vec![model(program(&["prints"]))]).unwrap();
    let answer = served(&registry).infer(row(1.0, 2.0), Terms::now()).await.unwrap();
    assert_eq!(sum(&answer.outputs), 3.0);
}

#[tokio::test]
async fn a_bad_row_is_its_caller_s_alone_whether_it_is_named_or_not_and_whoever_is_to_blame() {
    for (how, is_input) in [("names", true), ("halves", true), ("row", false), ("failed-rows", false)] {
        let registry = Registry::load(vec![model(program(&[how]))]).unwrap();
        let model = served(&registry);
        let one = async |i: usize| model.infer(row(if i == 5 { -1.0 } else { i as f32 }, 1.0), Terms::now()).await;
        let answers = join_all((0..24).map(one)).await;
        for (i, answer) in answers.into_iter().enumerate() {
            match answer {
                Ok(answer) => assert_eq!(sum(&answer.outputs), i as f32 + 1.0, "{how}"),
                Err(Error::Invalid(why)) => assert!(i == 5 && is_input && why.contains("negative"), "{how} {i}: {why}"),
                Err(error) => assert!(i == 5 && !is_input && error == Error::ModelFailed, "{how} {i}: {error}"),
            }
        }
    }
}

#[tokio::test]
async fn a_worker_that_breaks_the_protocol_loses_its_batch_and_is_replaced() {
    let registry = Registry::load(vec![model(program(&["breaks"]))]).unwrap();
    let model = served(&registry);
    let lost = model.infer(row(13.0, 1.0), Terms::now()).await.unwrap_err();
    assert_eq!(lost, Error::ModelFailed);
    let answer = model.infer(row(1.0, 1.0), Terms::now()).await.unwrap();
    assert_eq!(sum(&answer.outputs), 2.0);
}

#[tokio::test]
async fn workers_that_refuse_tell_nothing_of_the_others() {
    let message = refusal_of(program(&["exits", "prints"])).await;
    assert!(message.contains("sklearn"), "{message}");
}
