//! Accepts the connections of Pgpool-II's tools `pcp_*`. A handler speaks their protocol, PCP.

use std::{
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::{
    net::{TcpListener, TcpStream},
    time::sleep,
};

use crate::cold::{
    controller::Controller,
    doors::{self, ACCEPT_PAUSE, Connections, Service},
};

/// A connection of a tool.
#[derive(Debug)]
pub struct PcpConnection {
    pub stream: TcpStream,
    pub peer: SocketAddr,
    has_logged_in: Arc<AtomicBool>,
}

impl PcpConnection {
    /// Keeps the connection from being closed to make room for another one.
    pub fn log_in(&self) {
        self.has_logged_in.store(true, Ordering::Relaxed);
    }
}

/// Serves one connection to its end, within its own limits of time.
pub type PcpHandler = Arc<
    dyn Fn(&Controller, PcpConnection) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync,
>;

/// Serves wherever the configuration asks for it, for ever.
pub(crate) async fn keep(controller: Controller, handler: PcpHandler) {
    let connections = Arc::new(Connections::default());
    let accept = |listener| {
        accept(listener, controller.clone(), Arc::clone(&connections), Arc::clone(&handler))
    };
    let config = || controller.config();
    doors::keep(&controller.0.doors, Service::Pcp, config, accept).await;
}

async fn accept(
    listener: TcpListener,
    controller: Controller,
    connections: Arc<Connections>,
    handler: PcpHandler,
) {
    loop {
        let Ok((stream, peer)) = listener.accept().await else {
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        // Without room it is closed by being dropped.
        connections.admit(|has_logged_in| {
            let connection = PcpConnection { stream, peer, has_logged_in };
            tokio::spawn(handler(&controller, connection)).abort_handle()
        });
    }
}
