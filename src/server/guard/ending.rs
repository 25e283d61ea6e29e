//! How the guarded connection ends.

use std::future::poll_fn;
use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::super::refusals::Refusals;
use super::super::unread::most_behind;
use super::{Guard, LINGER, Phase};
use crate::telemetry::RequestId;

impl Guard {
    /// Ends the connection when no more is read of it: tells the client and the log why it was refused, if it was, and lets
    /// what it is still sending run out, for one second at most, and no more of it than behind a refusal of HTTP/2.
    pub(in crate::server) async fn finish(mut self, refusals: &Refusals) {
        // The server is going, and this one is still owed its answer. One that cannot be written needs none.
        let _ = poll_fn(|cx| self.poll_own(cx)).await;
        let between_requests = self.phase == Phase::Head && self.head.is_empty();
        if self.refusal.is_none() && between_requests && !self.socket.has_unread() {
            if self.socket.is_secured() {
                // RFC 9112, section 9.8: the other end is to know that nothing was cut off.
                let _ = tokio::time::timeout(LINGER, self.socket.shutdown()).await;
            }
            return;
        }
        let refusal = self.refusal.take();
        if let Some(refusal) = &refusal {
            self.quick.http.count(refusal.status().as_u16());
        }
        let (most, stream) = (most_behind(self.max_body_bytes), &mut self.socket);
        let farewell = async {
            if let Some(refusal) = refusal {
                let id = RequestId::made();
                refusals.note(&refusal, &id, None);
                stream.write_all(&refusal.to_message(&id)).await?;
            }
            stream.shutdown().await?;
            tokio::io::copy(&mut stream.take(most), &mut tokio::io::sink()).await?;
            io::Result::Ok(())
        };
        // A client that is gone needs no farewell, so both kinds of failure are fine.
        let _ = tokio::time::timeout(LINGER, farewell).await;
    }
}
