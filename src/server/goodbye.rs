//! What connections are told that are closed before a request of theirs is read.

use std::io;
use std::time::Duration;

use http::StatusCode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::refusals::Refusals;
use super::socket::Wire;
use super::status::Refusal;
use crate::telemetry::RequestId;

/// What a connection over the cap is told, without a request of its being read.
pub(super) fn no_room(bound: usize) -> Refusal {
    let message = format!("refused: all {bound} connections are taken");
    Refusal::new(StatusCode::SERVICE_UNAVAILABLE, message).retry_after(Duration::from_secs(1)).and_close()
}

/// Tells a client why its connection ends.
pub(super) async fn say_goodbye(mut wire: Wire, refusal: Refusal, refusals: &Refusals) -> io::Result<()> {
    let id = RequestId::made();
    refusals.note(&refusal, &id, None);
    wire.write_all(&refusal.to_message(&id)).await?;
    wire.shutdown().await?;
    // Closing with unread bytes would reset the connection before the client has read the answer.
    let mut swallowed = [0; 4 * 1024];
    while wire.read(&mut swallowed).await? > 0 {}
    Ok(())
}
