//! Connects PCP and the pooler: `proxy` accepts the connections, `admin` answers.
//!
//! A failed login costs a second, and all logins wait for each other. So passwords can be tried once a
//! second, however many connections try.

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

/// The time from accept to the end of the login.
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
    logins: &Mutex<()>,
) -> io::Result<()> {
    let mut pcp = Pcp::new(console::control(controller), salt);
    let log_in = async {
        while !pcp.is_logged_in() {
            if !turn(controller, &mut connection, &mut pcp, Some(logins)).await? {
                break;
            }
        }
        io::Result::Ok(())
    };
    timeout(LOGIN_TIME, log_in).await??;
    if !pcp.is_logged_in() {
        return Ok(());
    }
    connection.log_in();
    while turn(controller, &mut connection, &mut pcp, None).await? {}
    Ok(())
}

/// Receives and answers one request. `logins`: it may be a login. Returns false at the end.
async fn turn(
    controller: &Controller,
    connection: &mut PcpConnection,
    pcp: &mut Pcp,
    logins: Option<&Mutex<()>>,
) -> io::Result<bool> {
    let mut out = Vec::new();
    let next = {
        let _only = match logins {
            Some(logins) => Some(logins.lock().await),
            None => None,
        };
        let next = pcp.answer(&mut out).await;
        if next == PcpNext::Refused {
            sleep(GUESS_PAUSE).await;
        }
        next
    };
    timeout(SEND_TIME, connection.stream.write_all(&out)).await??;
    match next {
        PcpNext::GoOn => Ok(true),
        PcpNext::Refused | PcpNext::Close => Ok(false),
        PcpNext::Shutdown(how) => {
            console::control(controller).shutdown(how);
            Ok(true)
        }
        PcpNext::Receive => {
            let mut bytes = [0; 512];
            let len = timeout(IDLE_TIME, connection.stream.read(&mut bytes)).await??;
            pcp.receive(&bytes[..len]);
            Ok(len > 0)
        }
    }
}
