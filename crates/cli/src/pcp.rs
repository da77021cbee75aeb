//! Connects PCP and the pooler: `proxy` accepts the connections, `admin` answers.
//!
//! A failed login takes [`GUESS_PAUSE`], and the next login of any connection waits for its end. So
//! passwords can be tried once a second, however many connections try. A connection that is closed
//! meanwhile does not shorten the pause.

use std::{io, sync::Arc, time::Duration};

use admin::{Pcp, PcpNext};
use net::random;
use proxy::{Controller, PcpConnection, PcpHandler};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    sync::Mutex,
    time::{sleep, timeout},
};

use crate::console;

/// The time from accept until the client has sent a login. The wait for other logins comes after it.
const LOGIN_TIME: Duration = Duration::from_secs(10);
/// The time for which a connection may be without a request.
const IDLE_TIME: Duration = Duration::from_secs(60);
/// The time in which a client must take an answer.
const SEND_TIME: Duration = Duration::from_secs(30);
/// The delay of the answer to a failed login.
const GUESS_PAUSE: Duration = Duration::from_secs(1);

/// Serves the tools of Pgpool-II, for [`proxy::StartOptions`].
pub(crate) fn handler() -> PcpHandler {
    let logins = Arc::new(Mutex::new(()));
    Arc::new(move |controller, connection| {
        let (controller, logins) = (controller.clone(), Arc::clone(&logins));
        Box::pin(async move {
            // A client that has gone needs no answer.
            let _ = serve(&controller, connection, &logins).await;
        })
    })
}

fn salt() -> [u8; 4] {
    let mut salt = [0; 4];
    random::fill(&mut salt);
    salt
}

async fn serve(
    controller: &Controller,
    mut connection: PcpConnection,
    logins: &Arc<Mutex<()>>,
) -> io::Result<()> {
    let mut pcp = Pcp::new(console::control(controller), salt);
    let wants_to_log_in = converse(controller, &mut connection, &mut pcp);
    if timeout(LOGIN_TIME, wants_to_log_in).await?? {
        let mut out = Vec::new();
        let is_right = in_turn(logins, || pcp.log_in(&mut out)).await;
        send(&mut connection, &out).await?;
        if is_right {
            connection.log_in();
            converse(controller, &mut connection, &mut pcp).await?;
        }
    }
    Ok(())
}

/// Tries a login after the logins that came before it, and returns whether it was right. After a wrong
/// one it waits for [`GUESS_PAUSE`], and so do the logins behind it, even if this future is dropped.
async fn in_turn(logins: &Arc<Mutex<()>>, log_in: impl FnOnce() -> bool) -> bool {
    let turn = Arc::clone(logins).lock_owned().await;
    let is_right = log_in();
    if !is_right {
        // The task of the connection may be aborted.
        let pause = tokio::spawn(async move {
            sleep(GUESS_PAUSE).await;
            drop(turn);
        });
        let _ = pause.await;
    }
    is_right
}

/// Receives and answers requests. Returns true when a login comes, and false at the end.
async fn converse(
    controller: &Controller,
    connection: &mut PcpConnection,
    pcp: &mut Pcp,
) -> io::Result<bool> {
    loop {
        let mut out = Vec::new();
        let next = pcp.answer(&mut out).await;
        send(connection, &out).await?;
        match next {
            PcpNext::GoOn => {}
            PcpNext::LogIn => return Ok(true),
            PcpNext::Close => return Ok(false),
            PcpNext::Shutdown(how) => console::control(controller).shutdown(how),
            PcpNext::Receive => {
                let mut bytes = [0; 512];
                let len = timeout(IDLE_TIME, connection.stream.read(&mut bytes)).await??;
                pcp.receive(&bytes[..len]);
                if len == 0 {
                    return Ok(false);
                }
            }
        }
    }
}

async fn send(connection: &mut PcpConnection, out: &[u8]) -> io::Result<()> {
    timeout(SEND_TIME, connection.stream.write_all(out)).await?
}

#[cfg(test)]
mod tests {
    use tokio::{runtime, time::Instant};

    use super::*;

    fn run(test: impl Future<Output = ()>) {
        runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(test);
    }

    #[test]
    fn a_failed_login_delays_the_next_one_even_if_its_connection_is_closed() {
        run(async {
            let logins = Arc::new(Mutex::new(()));
            let began = Instant::now();
            let own = Arc::clone(&logins);
            let first = tokio::spawn(async move { in_turn(&own, || false).await });
            while logins.try_lock().is_ok() {
                tokio::task::yield_now().await;
            }
            first.abort();
            assert!(first.await.unwrap_err().is_cancelled());
            assert!(in_turn(&logins, || true).await);
            assert!(began.elapsed() >= GUESS_PAUSE, "{:?}", began.elapsed());
        });
    }

    #[test]
    fn the_right_login_delays_nobody() {
        run(async {
            let logins = Arc::new(Mutex::new(()));
            assert!(in_turn(&logins, || true).await);
            assert!(logins.try_lock().is_ok());
        });
    }
}
